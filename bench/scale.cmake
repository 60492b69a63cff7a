# Two rounds of one series become pages, to which a third of another is joined;
# what there is no memory for is told there.
cmake_minimum_required(VERSION 3.25)
set(scale ${PYTHON} ${CMAKE_CURRENT_LIST_DIR}/scale.py ${BENCH} --quick)
file(REMOVE_RECURSE ${OUT})
execute_process(COMMAND ${scale} --series tensors --rounds 2 --out ${OUT}
                OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(GLOB points ${OUT}/*-scale.json)
execute_process(COMMAND ${scale} --series bytes:1152921504606846976 --rounds 1
                --points ${points} --out ${OUT}
                OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
foreach(wanted IN ITEMS "Least of 2 rounds" "5 [|] [0-9.]+ [num]s [.][.] [0-9]"
        "tensormsg, shm [|] 1 to 10 [|] "
        "not measured: 1152921504606846976 bytes: [^\n]*memory")
    if(NOT text MATCHES "${wanted}")
        message(FATAL_ERROR "no '${wanted}' in\n${text}")
    endif()
endforeach()

# What was written is drawn.
file(GLOB figures ${OUT}/*-scale.json)
execute_process(COMMAND ${PYTHON} ${CMAKE_CURRENT_LIST_DIR}/plot.py ${figures}
                        ${OUT}/plot
                COMMAND_ERROR_IS_FATAL ANY)
file(READ ${OUT}/plot-tensors.svg drawn)
foreach(wanted IN ITEMS "<svg" "a tensor<")
    if(NOT drawn MATCHES "${wanted}")
        message(FATAL_ERROR "no '${wanted}' in ${OUT}/plot-tensors.svg")
    endif()
endforeach()

# So are the pictures of docs/performance.md, of the results that are kept.
execute_process(COMMAND ${PYTHON} ${CMAKE_CURRENT_LIST_DIR}/plot.py
                        ${CMAKE_CURRENT_LIST_DIR}/results ${OUT}/page
                COMMAND_ERROR_IS_FATAL ANY)
foreach(name IN ITEMS latency bandwidth peers cores)
    file(READ ${OUT}/page-${name}.svg drawn)
    if(NOT drawn MATCHES "<svg" OR NOT drawn MATCHES ">measured 20")
        message(FATAL_ERROR "page-${name}.svg does not say when it was measured")
    endif()
endforeach()
