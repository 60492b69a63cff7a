# The libraries we stand on, all by pkg-config; scripts/setup.sh installs them.

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

pkg_check_modules(UCX REQUIRED IMPORTED_TARGET ucx>=1.13.1)
pkg_check_modules(CJSON REQUIRED IMPORTED_TARGET libcjson)
pkg_check_modules(ZIP REQUIRED IMPORTED_TARGET libzip)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)
pkg_check_modules(OPENSSL IMPORTED_TARGET openssl>=3.0)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
# msgpack-c renamed its file in version 6.
pkg_search_module(MSGPACK REQUIRED IMPORTED_TARGET msgpack-c msgpack)
# Debian 13's says "-Iinclude", which is no folder.
get_target_property(msgpack_headers PkgConfig::MSGPACK
                    INTERFACE_INCLUDE_DIRECTORIES)
list(FILTER msgpack_headers INCLUDE REGEX "^/")
set_property(TARGET PkgConfig::MSGPACK
             PROPERTY INTERFACE_INCLUDE_DIRECTORIES ${msgpack_headers})

option(TMSG_TLS "Build tls://, by OpenSSL 3" ${OPENSSL_FOUND})
if(TMSG_TLS AND NOT OPENSSL_FOUND)
    message(FATAL_ERROR "TMSG_TLS needs OpenSSL 3 (libssl-dev)")
endif()

# What a user of the static library has to link: names and folders.
set(TMSG_LIBRARIES)
set(TMSG_LIBRARY_DIRS)
set(packages UCX MSGPACK CJSON ZIP SODIUM XXHASH)
if(TMSG_TLS)
    list(APPEND packages OPENSSL)
endif()
foreach(package IN LISTS packages)
    list(APPEND TMSG_LIBRARIES ${${package}_LIBRARIES})
    list(APPEND TMSG_LIBRARY_DIRS ${${package}_LIBRARY_DIRS})
endforeach()
# We call ucp and ucs only; the other two are UCX's own affair.
list(REMOVE_ITEM TMSG_LIBRARIES uct ucm)
list(APPEND TMSG_LIBRARIES pthread dl m)
list(REMOVE_DUPLICATES TMSG_LIBRARIES)
list(REMOVE_DUPLICATES TMSG_LIBRARY_DIRS)
list(REMOVE_ITEM TMSG_LIBRARY_DIRS ${CMAKE_C_IMPLICIT_LINK_DIRECTORIES})
