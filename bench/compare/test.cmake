# One short round: the pages have a row for each way. Sides that spin would wait
# for whatever else the machine runs.
file(REMOVE_RECURSE ${OUT})
set(robot ${CMAKE_CURRENT_LIST_DIR}/../workloads/robot-observation.json)
file(WRITE ${OUT}/list.json [[{"name": "list", "maps": [
    {"tensors": [{"name": "a", "dtype": "float32", "shape": [3, 5]}]},
    {"meta": {"n": 1, "x": 0.5, "t": "text"},
     "tensors": [{"name": "b/{}", "dtype": "uint8", "shape": [5000],
                  "times": 3}]}]}]])
execute_process(
    COMMAND ${PYTHON} ${CMAKE_CURRENT_LIST_DIR}/compare.py ${PROGRAM}
            --rounds 1 --seconds 0.01 --shared no --sleep --out ${OUT} ${robot}
            ${OUT}/list.json
    RESULT_VARIABLE result OUTPUT_VARIABLE text)
if(NOT result EQUAL 0)
    message(FATAL_ERROR "compare.py: ${result}")
endif()
if(text MATCHES "Not measured")
    message(FATAL_ERROR "${text}")
endif()
foreach(over IN ITEMS shm tcp encrypted)
    execute_process(COMMAND ${PROGRAM} ${over} OUTPUT_VARIABLE ${over}
                    OUTPUT_STRIP_TRAILING_WHITESPACE)
    string(REPLACE "\n" ";" ${over} "${${over}}")
    foreach(place IN ITEMS robot-observation list)
        string(REGEX MATCH "## ${place}, ${over}\n[^#]*" page "${text}")
        foreach(way ${${over}})
            string(REPLACE "+" "\\+" way "${way}")
            if(NOT page MATCHES "\n\\| ${way} \\| [0-9.,]+ ")
                message(FATAL_ERROR "${place}, ${over}: no ${way}\n${text}")
            endif()
        endforeach()
    endforeach()
endforeach()
if(encrypted MATCHES "tensormsg, call" AND NOT text MATCHES
   "beside one raw connection\n[^#]*\n\\| list \\|( [0-9.]+ [(][0-9.]+[^|]*\\|)+")
    message(FATAL_ERROR "nothing beside one raw connection\n${text}")
endif()
file(GLOB pages ${OUT}/*-*.md ${OUT}/*-*.json)
list(LENGTH pages found)
if(NOT found EQUAL 2)
    message(FATAL_ERROR "pages: ${pages}")
endif()

# All figures, ours twice.
file(GLOB figures ${OUT}/*-*.json)
file(READ ${figures} figures)
foreach(kind IN ITEMS ways controls)
    string(JSON found LENGTH "${figures}" ${kind} "list, shm" tensormsg)
    if(NOT found EQUAL 1)
        message(FATAL_ERROR "${kind} of ${found} rounds in\n${figures}")
    endif()
endforeach()

# Where processors are shared: each way at each work, unless there are no cgroups.
execute_process(
    COMMAND ${PYTHON} ${CMAKE_CURRENT_LIST_DIR}/compare.py ${PROGRAM}
            --rounds 1 --shared only --shared-seconds 0.01 --out ${OUT}
            --works one_core_nice,oversubscribed_2_busy,one_core_cgroup
    RESULT_VARIABLE result OUTPUT_VARIABLE text)
if(NOT result EQUAL 0)
    message(FATAL_ERROR "compare.py --shared only: ${result}")
endif()
set(works 3)
set(ways ${shm})
if(text MATCHES "Not measured: one_core_cgroup, shm: no cgroup")
    set(works 2)
elseif(text MATCHES "Not measured")
    message(FATAL_ERROR "${text}")
endif()
foreach(way ${ways})
    string(REPLACE "+" "\\+" way "${way}")
    string(REGEX MATCHALL "\\| ${way} \\| [0-9.,]+ \\| [0-9.,]+ " rows "${text}")
    list(LENGTH rows found)
    if(NOT found EQUAL works)
        message(FATAL_ERROR "${way}: ${found} rows\n${text}")
    endif()
endforeach()
file(GLOB shared ${OUT}/*-shared.json)
file(READ ${shared} shared)
foreach(kind IN ITEMS ways controls)
    string(JSON found LENGTH "${shared}" shared ${kind} "one_core_nice, shm"
           tensormsg)
    if(NOT found EQUAL 1)
        message(FATAL_ERROR "${kind} of ${found} rounds in\n${shared}")
    endif()
endforeach()

# The other workloads can be read, and arrive. Both sides sleep while they wait,
# as what else the machine runs would stop them where they spin.
file(GLOB workloads ${CMAKE_CURRENT_LIST_DIR}/../workloads/*.json)
foreach(workload ${workloads})
    execute_process(COMMAND ${PROGRAM} tensormsg ${workload} shm 0.01
                            1 0 any nothing
                    RESULT_VARIABLE result)
    if(NOT result EQUAL 0)
        message(FATAL_ERROR "${workload}: ${result}")
    endif()
endforeach()

# A choice of ways and of what they go over; one that there is not is said.
execute_process(
    COMMAND ${PYTHON} ${CMAKE_CURRENT_LIST_DIR}/compare.py ${PROGRAM}
            --rounds 1 --seconds 0.01 --shared no --out ${OUT} --over tcp
            --way tensormsg --way "tensormsg, stream" ${OUT}/list.json
    RESULT_VARIABLE result OUTPUT_VARIABLE text)
string(REGEX MATCHALL "\n(## |\\| )[^|\n]*[^|\n ]" rows "${text}")
list(SORT rows)
string(REPLACE "\n" "" rows "${rows}")
if(NOT result EQUAL 0 OR NOT rows STREQUAL
   "## list, tcp;| tensormsg;| tensormsg, stream;| way")
    message(FATAL_ERROR "${result}: ${rows}\n${text}")
endif()
execute_process(
    COMMAND ${PYTHON} ${CMAKE_CURRENT_LIST_DIR}/compare.py ${PROGRAM}
            --shared no --over shm --way "tensormsg, stream"
    RESULT_VARIABLE result ERROR_VARIABLE text)
if(result EQUAL 0 OR NOT text MATCHES
   "'tensormsg, stream' takes no part there; these do: .*tensormsg")
    message(FATAL_ERROR "${result}: ${text}")
endif()

# What is wrong with a workload is said.
file(WRITE ${OUT}/wrong.json [[{"name": "wrong", "maps": [
    {"tensors": [{"name": "a", "dtype": "float31", "shape": []}]}]}]])
execute_process(COMMAND ${PROGRAM} tensormsg ${OUT}/wrong.json shm 0.01
                RESULT_VARIABLE result ERROR_VARIABLE text)
if(result EQUAL 0 OR NOT text MATCHES "map 0: a: .*dtype")
    message(FATAL_ERROR "${result}: ${text}")
endif()
