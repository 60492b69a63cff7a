#!/bin/sh
# subproject.sh SOURCE_DIR: inside another project ours gives its libraries, and
# neither builds nor installs anything that nobody asked for.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat > "$work/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(outer C)
include(FetchContent)
FetchContent_Declare(tensormsg SOURCE_DIR $1)
FetchContent_MakeAvailable(tensormsg)
foreach(target IN ITEMS tensormsg::tensormsg tensormsg::static)
    if(NOT TARGET \${target})
        message(FATAL_ERROR "no target \${target}")
    endif()
endforeach()
if(TARGET tensormsg_cmd)
    message(FATAL_ERROR "the command is built without a wish for it")
endif()
END
cmake -S "$work" -B "$work/build" > "$work/log" 2>&1 || {
    cat "$work/log"
    exit 1
}
# Nothing has been built: whatever it wanted to install would be missing.
cmake --install "$work/build" --prefix "$work/prefix"
[ ! -e "$work/prefix" ] || {
    find "$work/prefix"
    exit 1
}
