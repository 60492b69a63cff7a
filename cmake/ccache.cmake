# ccache, where it is there. What the compiler says of the headers that it read
# is enough to know an object by: the preprocessor need not run once more, which
# takes a third of what it takes to compile a file that is not known yet.
if(NOT CMAKE_C_COMPILER_LAUNCHER AND NOT TMSG_COVERAGE)
    find_program(CCACHE ccache)
    if(CCACHE)
        set(CMAKE_C_COMPILER_LAUNCHER env CCACHE_DEPEND=1 ${CCACHE})
    endif()
endif()
