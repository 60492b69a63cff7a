# Build type, language, warnings and instrumentation of everything we compile.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES
   AND PROJECT_IS_TOP_LEVEL)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
add_compile_definitions(_GNU_SOURCE)
# A program then needs only the libraries it really uses: pkg-config names all
# four of UCX, and the static library's user may never touch a .npz.
add_link_options(-Wl,--as-needed)

include(${CMAKE_CURRENT_LIST_DIR}/ccache.cmake)

set(TMSG_WARNINGS -Wall -Wextra -Wconversion -Wshadow -Wcast-qual)
# Criterion's macros expand to conversions that are not ours to mend.
set(TMSG_TEST_WARNINGS -Wall -Wextra -Wshadow)
if(TMSG_WERROR)
    list(APPEND TMSG_WARNINGS -Werror)
    list(APPEND TMSG_TEST_WARNINGS -Werror)
endif()

# The rooms call each other for every tensor: optimized as one, a small message
# costs a quarter less. Their objects hold plain code as well, for those who link
# them otherwise. Clang has no such objects before version 17.
set(TMSG_WHOLE)
if(TMSG_LTO AND CMAKE_C_COMPILER_ID STREQUAL "GNU" AND NOT TMSG_SANITIZE
   AND NOT TMSG_COVERAGE)
    set(TMSG_WHOLE -flto=auto -ffat-lto-objects)
endif()

# A plain -fsanitize=undefined reports and exits 0, hence the no-recover.
if(TMSG_FUZZ_ENGINE)
    # The flags are the engine's.
elseif(TMSG_SANITIZE STREQUAL "address" OR TMSG_FUZZ)
    set(flags -fsanitize=address,undefined -fno-sanitize-recover=all)
elseif(TMSG_SANITIZE STREQUAL "thread")
    set(flags -fsanitize=thread)
elseif(TMSG_SANITIZE)
    message(FATAL_ERROR "TMSG_SANITIZE: '${TMSG_SANITIZE}' is neither "
                        "address nor thread")
endif()
if(flags)
    add_compile_options(${flags} -O1 -fno-omit-frame-pointer)
    add_link_options(${flags})
    unset(flags)
endif()

if(TMSG_FUZZ AND NOT TMSG_FUZZ_ENGINE)
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "TMSG_FUZZ needs CMAKE_C_COMPILER=clang")
    endif()
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()

if(TMSG_COVERAGE)
    add_compile_options(--coverage -O0)
    add_link_options(--coverage)
endif()
