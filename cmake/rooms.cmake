# tmsg_room(<name> [LIBRARIES UCX MSGPACK ...] [WITHOUT <regex>])
#
# Compiles every .c of the current folder, and of the folders in it, into the
# objects of room <name>. Only the rooms that name a library see its headers. An
# empty room is no room. WITHOUT leaves files out, by their paths in the folder.
function(tmsg_room name)
    cmake_parse_arguments(room "" "WITHOUT" "LIBRARIES" ${ARGN})
    file(GLOB sources RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS
         *.c */*.c)
    if(room_WITHOUT)
        list(FILTER sources EXCLUDE REGEX ${room_WITHOUT})
    endif()
    if(NOT sources)
        return()
    endif()
    add_library(tmsg_${name} OBJECT ${sources})
    target_include_directories(tmsg_${name} PRIVATE
        ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
    target_compile_options(tmsg_${name} PRIVATE ${TMSG_WARNINGS} ${TMSG_WHOLE})
    foreach(library IN LISTS room_LIBRARIES)
        target_link_libraries(tmsg_${name} PRIVATE PkgConfig::${library})
    endforeach()
    set_property(GLOBAL APPEND PROPERTY TMSG_OBJECTS
                 $<TARGET_OBJECTS:tmsg_${name}>)
endfunction()

# tmsg_libraries(): the shared and the static library, from the rooms' objects.
function(tmsg_libraries)
    get_property(objects GLOBAL PROPERTY TMSG_OBJECTS)
    set(map ${PROJECT_SOURCE_DIR}/src/tensormsg.map)

    # Before 1.0 a minor release may change the ABI (version.h).
    set(soversion ${PROJECT_VERSION_MAJOR})
    if(soversion EQUAL 0)
        string(APPEND soversion .${PROJECT_VERSION_MINOR})
    endif()

    add_library(tensormsg SHARED ${objects})
    add_library(tensormsg::tensormsg ALIAS tensormsg)
    set_target_properties(tensormsg PROPERTIES
        VERSION ${PROJECT_VERSION} SOVERSION ${soversion} LINK_DEPENDS ${map}
        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
    # A name lookup's thread may outlive its context: never unload the code.
    target_link_options(tensormsg PRIVATE ${TMSG_WHOLE}
                        -Wl,--version-script=${map} -Wl,-z,nodelete)
    if(NOT TMSG_SANITIZE AND NOT TMSG_FUZZ)
        target_link_options(tensormsg PRIVATE -Wl,--no-undefined)
    endif()
    target_link_libraries(tensormsg PRIVATE ${TMSG_LIBRARIES})
    target_link_directories(tensormsg PRIVATE ${TMSG_LIBRARY_DIRS})

    add_library(tensormsg_static STATIC ${objects})
    add_library(tensormsg::static ALIAS tensormsg_static)
    set_target_properties(tensormsg_static PROPERTIES
        OUTPUT_NAME tensormsg EXPORT_NAME static
        ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
    if(TMSG_WHOLE) # another compiler could not read what they hold for this one
        add_custom_command(TARGET tensormsg_static POST_BUILD COMMAND
            ${CMAKE_OBJCOPY} --wildcard -R .gnu.lto_* -R .gnu.debuglto_*
            $<TARGET_FILE:tensormsg_static> VERBATIM)
    endif()
    target_link_libraries(tensormsg_static INTERFACE ${TMSG_LIBRARIES})
    target_link_directories(tensormsg_static INTERFACE ${TMSG_LIBRARY_DIRS})

    foreach(target IN ITEMS tensormsg tensormsg_static)
        target_include_directories(${target} INTERFACE
            $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
            $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    endforeach()
endfunction()
