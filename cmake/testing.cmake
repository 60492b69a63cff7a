# How tests are built and registered with ctest. The folders below tests/ call
# one line each; a new test is one new file and no edit.

set(TMSG_VENV ${PROJECT_SOURCE_DIR}/build/venv CACHE PATH
    "Python environment of the tests, made by scripts/setup.sh")
file(GLOB TMSG_UCX_1_22 ${TMSG_VENV}/lib/python3*/site-packages/libucx/lib)
if(NOT TMSG_UCX_1_22 AND NOT TMSG_FUZZ)
    set(no_ucx_1_22
        "no UCX 1.22 in ${TMSG_VENV}: scripts/setup.sh test installs it")
    message(WARNING "${no_ucx_1_22}")
endif()

set(reports ${PROJECT_BINARY_DIR}/reports)
set(seconds ${PROJECT_BINARY_DIR}/Testing/seconds) # scripts/seconds.sh
file(MAKE_DIRECTORY ${seconds})
set(test_environment
    TMSG_SOURCE_DIR=${PROJECT_SOURCE_DIR}
    TMSG_SANITIZE=${TMSG_SANITIZE}
    TMSG_UCX_1_22=${TMSG_UCX_1_22}
    OPENBLAS_NUM_THREADS=1 # numpy starts and spins one a processor otherwise
    PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 # hypothesis' takes a second to load
    TENSORMSG_EXAMPLES=${PROJECT_BINARY_DIR}/examples
    LIBTENSORMSG=$<TARGET_FILE:tensormsg>)
if(TARGET tensormsg_cmd)
    list(APPEND test_environment TENSORMSG=$<TARGET_FILE:tensormsg_cmd>)
endif()

# Under Criterion a leak is reported and the run still exits 0, and a child's
# report may go to a pipe nobody reads: reports go to a folder, which a test
# of its own finds empty or prints. Names of functions and lines are looked up
# there: the loader's own memory is a leak that is known, by its library, and is
# found in nearly every process, and the sanitizer, were it to know names,
# would read the debug information of all libraries for it each time, which is
# half of the run.
if(TMSG_SANITIZE STREQUAL "address")
    set(supp ${PROJECT_SOURCE_DIR}/tests/lsan.supp)
    list(APPEND test_environment
        ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:symbolize=0:log_path=${reports}/asan
        UBSAN_OPTIONS=print_stacktrace=1:log_path=${reports}/ubsan
        LSAN_OPTIONS=suppressions=${supp}:print_suppressions=0)
elseif(TMSG_SANITIZE STREQUAL "thread")
    set(supp ${PROJECT_SOURCE_DIR}/tests/tsan.supp)
    list(APPEND test_environment
        TSAN_OPTIONS=suppressions=${supp}:second_deadlock_stack=1:log_path=${reports}/tsan)
    # gcc 12's TSan dies on kernels that randomize more address bits than it
    # knows. Containers may forbid the switch, and mostly do not need it.
    execute_process(COMMAND setarch -R true RESULT_VARIABLE rc ERROR_QUIET)
    if(rc EQUAL 0)
        set(test_prefix setarch -R)
    endif()
endif()
if(TMSG_SANITIZE)
    add_test(NAME sanitizer/start COMMAND sh -c
             "rm -rf \"$0\" && mkdir \"$0\"" ${reports})
    add_test(NAME sanitizer/reports COMMAND
             ${PROJECT_SOURCE_DIR}/tests/support/reports.sh ${reports})
    set_tests_properties(sanitizer/start PROPERTIES FIXTURES_SETUP sanitizer)
    set_tests_properties(sanitizer/reports PROPERTIES
        FIXTURES_CLEANUP sanitizer)
endif()

# A plain ctest never runs what is `make soak`'s.
function(tmsg_when when_p name)
    set(${when_p} PARENT_SCOPE)
    if(name MATCHES "^soak/")
        set(${when_p} CONFIGURATIONS soak PARENT_SCOPE)
    endif()
endfunction()

# tmsg_skipped_test(<name> <why> <label>...)
#
# An entry that cannot run here says so; one that is left out is not missed.
function(tmsg_skipped_test name why)
    tmsg_when(when ${name})
    add_test(NAME ${name} ${when} COMMAND sh -c "echo \"SKIPPED: $0\"; exit 77" ${why})
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77
                         LABELS "${ARGN}")
endfunction()

# A program on UCX 1.22. While it is loaded, UCX waits 50 ms after each of the
# nine functions of libc that it patches, so that no other thread is inside of
# one; a program that is only being started has no other thread. pytest leaves
# out what is marked "once": UCX has no part in it, or it runs on both anyway.
set(on_ucx_1_22 LD_LIBRARY_PATH=path_list_prepend:${TMSG_UCX_1_22}
                UCX_MEM_BISTRO_GRACE_DURATION=set:0us
                TMSG_OTHER_HALF=set:1 # support/test_scale.h
                "PYTEST_ADDOPTS=set:-m 'not once'")

# What an entry took when that was last written down: those that take long begin
# first, so that none of them is what all wait for in the end.
file(STRINGS ${PROJECT_SOURCE_DIR}/tests/seconds.txt lines REGEX "^[a-z]")
foreach(line IN LISTS lines)
    string(REGEX MATCH "^([^ ]+) (.+)$" line "${line}")
    set(cost_of_${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
endforeach()

# tmsg_add_test(<name> COMMAND <word>... [LABELS <label>...]
#               [ENVIRONMENT <NAME=value>...] [TIMEOUT <seconds>]
#               [TWICE | TWICE_IN_SOAK] [COST <seconds>] [PROCESSORS <count>])
#
# add_test with our environment and time limit. TWICE: once more as
# <name>@ucx1.22, the same binaries with that runtime; TWICE_IN_SOAK: that one
# by `make soak` alone. COST: its place in the order in which they begin, where the
# seconds of a processor in tests/seconds.txt do not tell, because it waits.
function(tmsg_add_test name)
    cmake_parse_arguments(test "TWICE;TWICE_IN_SOAK" "TIMEOUT;COST;PROCESSORS"
                          "COMMAND;LABELS;ENVIRONMENT" ${ARGN})
    if(NOT test_TIMEOUT)
        set(test_TIMEOUT 300) # for what hangs: a busy machine is ten times slower
    endif()
    set(schedule)
    if(test_PROCESSORS)
        set(schedule PROCESSORS ${test_PROCESSORS})
    endif()
    set(names ${name})
    set(second)
    set(labels ${test_LABELS})
    if(test_TWICE)
        set(second ${name}@ucx1.22)
    elseif(test_TWICE_IN_SOAK)
        string(REPLACE "/" "-" second ${name}@ucx1.22)
        string(PREPEND second soak/)
        set(labels soak)
    endif()
    if(second AND TMSG_UCX_1_22)
        list(APPEND names ${second})
    elseif(second)
        tmsg_skipped_test(${second} "${no_ucx_1_22}" ${labels} ucx1.22)
    endif()
    foreach(each IN LISTS names)
        tmsg_when(when ${each})
        string(REPLACE "/" ":" file ${each})
        set(cost ${cost_of_${each}})
        if(test_COST)
            set(cost ${test_COST})
        endif()
        list(POP_FRONT test_COMMAND program)
        if(TARGET ${program}) # as add_test() itself would have it
            set(program $<TARGET_FILE:${program}>)
        endif()
        list(PREPEND test_COMMAND ${program})
        add_test(NAME ${each} ${when} COMMAND
                 ${PROJECT_SOURCE_DIR}/tests/support/timed.sh ${seconds}/${file}
                 ${test_prefix} ${test_COMMAND})
        set_tests_properties(${each} PROPERTIES
            TIMEOUT ${test_TIMEOUT} LABELS "${test_LABELS}" ${schedule}
            COST "${cost}"
            ENVIRONMENT
            "${test_environment};${TMSG_UCX_SIZES};${test_ENVIRONMENT}")
        if(TMSG_SANITIZE)
            set_tests_properties(${each} PROPERTIES
                                 FIXTURES_REQUIRED sanitizer)
        endif()
        if(each MATCHES "@ucx1.22$")
            set_tests_properties(${each} PROPERTIES
                LABELS "${labels};ucx1.22"
                ENVIRONMENT_MODIFICATION "${on_ucx_1_22}")
        endif()
    endforeach()
endfunction()

# Tests are compiled more often than they are run: what takes its time at run
# time is the library and tests/support.
set(TMSG_QUICK)
if(NOT TMSG_SANITIZE STREQUAL "thread" AND NOT TMSG_FUZZ)
    set(TMSG_QUICK -O0)
endif()

# They are some 250 programs, each with all of the library's debug information.
find_program(TMSG_GOLD ld.gold)
set(TMSG_QUICK_LINK)
if(TMSG_GOLD AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    set(TMSG_QUICK_LINK -fuse-ld=gold)
endif()

# tmsg_program(<target> SOURCES <file>... [LIBRARIES <target>...])
#
# A test's executable: the static library (its inside is visible), the headers
# of include/, src/ and tests/, and tests/support. assert() always counts.
function(tmsg_program target)
    cmake_parse_arguments(program "" "" "SOURCES;LIBRARIES" ${ARGN})
    add_executable(${target} ${program_SOURCES})
    target_include_directories(${target} PRIVATE
        ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
    target_compile_options(${target} PRIVATE ${TMSG_TEST_WARNINGS} ${TMSG_QUICK}
                           -UNDEBUG)
    target_link_options(${target} PRIVATE ${TMSG_QUICK_LINK})
    if(TARGET tmsg_test_support)
        target_link_libraries(${target} PRIVATE tmsg_test_support)
    endif()
    target_link_libraries(${target} PRIVATE
        ${program_LIBRARIES} tensormsg_static Threads::Threads)
endfunction()

# tmsg_test(<room>/<test> <file> [arguments of tmsg_add_test])
#
# A Criterion test. ctest runs the files side by side, so each runs its own
# tests one by one, but four at a time where TMSG_PATIENT has the name: those
# mostly wait. --timeout names the one that hangs, --verbose those that were
# skipped. What the library warns of is beside the output of one that fails.
function(tmsg_test name source)
    set(jobs 1)
    set(cost)
    if(name IN_LIST TMSG_PATIENT)
        set(jobs 4)
        set(cost COST 20)
    endif()
    string(REPLACE "/" "_" target test_${name})
    tmsg_program(${target} SOURCES ${source} LIBRARIES tmsg_criterion)
    tmsg_add_test(${name} ${ARGN} ${cost}
        COMMAND $<TARGET_FILE:${target}> --jobs ${jobs} --timeout 250 --color=never
                --ascii --verbose
        ENVIRONMENT TENSORMSG_LOG=warn ${TMSG_TURNS})
    # A leak that is known by the name of a function.
    file(STRINGS ${source} names REGEX "FAILING_ALLOC_LEAKS" LIMIT_COUNT 1)
    if(names AND TMSG_SANITIZE STREQUAL "address")
        set_tests_properties(${name} PROPERTIES ENVIRONMENT_MODIFICATION
                             ASAN_OPTIONS=string_append::symbolize=1)
    endif()
endfunction()

# tmsg_test_room(<room> [arguments of tmsg_add_test])
#
# One executable and one ctest entry, <room>/x, for each test_x.c here, or in a
# folder here; those of a folder tls only where there is tls://. A file
# with the line "/* ctest: once" is left out of TWICE: UCX has no part in what it
# tests, or others show that part. "/* ctest: twice" is TWICE by itself, and
# "/* ctest: twice in soak" TWICE_IN_SOAK.
function(tmsg_test_room room)
    file(GLOB sources CONFIGURE_DEPENDS test_*.c */test_*.c)
    if(NOT TMSG_TLS)
        list(FILTER sources EXCLUDE REGEX "/tls/test_[^/]*$")
    endif()
    foreach(source IN LISTS sources)
        cmake_path(GET source STEM stem)
        string(REGEX REPLACE "^test_" "" stem ${stem})
        set(more ${ARGN})
        file(STRINGS ${source} mark REGEX "^/[*] ctest: (once|twice)"
             LIMIT_COUNT 1)
        if(mark)
            list(REMOVE_ITEM more TWICE)
        endif()
        file(STRINGS ${source} halves REGEX "is_due|does_half" LIMIT_COUNT 1)
        set(TMSG_TURNS)
        if(TWICE IN_LIST more AND NOT halves)
            set(TMSG_TURNS TMSG_TURNS=1) # tests/criterion/turns.c
        endif()
        if(mark MATCHES "twice in soak")
            list(APPEND more TWICE_IN_SOAK)
        elseif(mark MATCHES "twice")
            list(APPEND more TWICE)
        endif()
        tmsg_test(${room}/${stem} ${source} LABELS ${room} ${more})
    endforeach()
endfunction()
