# SPDX-License-Identifier: Apache-2.0
# pelton_layer(name [DIR folder] [EXCEPT folder...] [SEES layer...] [DEPENDS library...]): static library
# pelton_<name> from src/<folder>/**.cc, without the sub-folders named by EXCEPT (layers of their own). SEES are
# layers above it, DEPENDS are targets of PeltonDepends (without the dep_ prefix).
function(pelton_layer name)
  cmake_parse_arguments(ARG "" "DIR" "SEES;DEPENDS;SOURCES;EXCEPT;TESTS_SEE" ${ARGN})
  if(NOT ARG_DIR)
    set(ARG_DIR ${name})
  endif()
  if(NOT ARG_SOURCES)
    set(patterns ${CMAKE_SOURCE_DIR}/src/${ARG_DIR}/*.cc)
    if(CMAKE_CUDA_COMPILER)
      list(APPEND patterns ${CMAKE_SOURCE_DIR}/src/${ARG_DIR}/*.cu)
    endif()
    file(GLOB_RECURSE ARG_SOURCES CONFIGURE_DEPENDS ${patterns})
    foreach(folder ${ARG_EXCEPT})
      list(FILTER ARG_SOURCES EXCLUDE REGEX "/src/${ARG_DIR}/${folder}/")
    endforeach()
  endif()
  add_library(pelton_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(pelton_${name} PRIVATE pelton_flags)
  set_property(GLOBAL APPEND PROPERTY PELTON_LAYERS ${name})
  set_property(GLOBAL PROPERTY PELTON_LAYER_FOLDER_${name} ${ARG_DIR})
  list(TRANSFORM ARG_TESTS_SEE PREPEND pelton_)
  set_property(GLOBAL PROPERTY PELTON_LAYER_TESTS_${name} ${ARG_TESTS_SEE})
  foreach(layer ${ARG_SEES})
    target_link_libraries(pelton_${name} PUBLIC pelton_${layer})
  endforeach()
  foreach(library ${ARG_DEPENDS})
    target_link_libraries(pelton_${name} PUBLIC dep_${library})
  endforeach()
endfunction()

# The Python that runs *_test.py: the one of .venv, else of the active environment. Without pytest those tests
# are left out, and the configuration says so.
function(pelton_find_pytest)
  # Not cached: .venv may appear after the first configuration.
  find_program(PELTON_PYTHON NAMES python3 HINTS ${CMAKE_SOURCE_DIR}/.venv/bin $ENV{VIRTUAL_ENV}/bin NO_CACHE)
  set(PELTON_PYTHON ${PELTON_PYTHON} PARENT_SCOPE)
  execute_process(COMMAND ${PELTON_PYTHON} -c "import pytest, numpy" RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
  if(status EQUAL 0)
    set(PELTON_HAVE_PYTEST ON PARENT_SCOPE)
  else()
    set(PELTON_HAVE_PYTEST OFF PARENT_SCOPE)
    message(STATUS "pelton: no pytest and numpy in ${PELTON_PYTHON}, the tests in Python are off")
  endif()
endfunction()

# pelton_python_tests(folder): each tests/<folder>/*_test.py as ctest <folder>/<file>, with the folder's label.
# PELTON_BINARY_DIR tells a test where the built programs are.
function(pelton_python_tests folder)
  if(NOT PELTON_TESTS OR NOT PELTON_HAVE_PYTEST)
    return()
  endif()
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${folder}/*_test.py)
  foreach(file ${files})
    get_filename_component(name ${file} NAME_WE)
    add_test(NAME ${folder}/${name} COMMAND ${PELTON_PYTHON} -m pytest -q -rs -p no:cacheprovider -p skipped_modules ${file}
             WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(${folder}/${name} PROPERTIES LABELS ${folder} TIMEOUT 600 ENVIRONMENT
                         "PELTON_BINARY_DIR=${CMAKE_BINARY_DIR};PYTHONDONTWRITEBYTECODE=1;PYTHONPATH=${CMAKE_SOURCE_DIR}/tests/support")
  endforeach()
endfunction()

# pelton_folder_tests(folder LINKS target...): test_<folder> from tests/<folder>/*_test.cc and harness*.cc with the folder's
# ctest label, and the folder's tests in Python.
function(pelton_folder_tests folder)
  cmake_parse_arguments(ARG "" "" "LINKS" ${ARGN})
  if(NOT PELTON_TESTS)
    return()
  endif()
  if(NOT TARGET pelton_test_main)
    add_library(pelton_test_main STATIC ${CMAKE_SOURCE_DIR}/tests/support/main.cc)
    target_link_libraries(pelton_test_main PUBLIC pelton_flags dep_doctest)
  endif()
  string(REPLACE "/" "_" target ${folder})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${folder}/*_test.cc
       ${CMAKE_SOURCE_DIR}/tests/${folder}/harness*.cc)
  if(sources)
    add_executable(test_${target} ${sources})
    target_include_directories(test_${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
    target_link_libraries(test_${target} PRIVATE pelton_test_main ${ARG_LINKS})
    add_test(NAME ${folder} COMMAND test_${target} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(${folder} PROPERTIES LABELS ${folder} TIMEOUT 600)
  endif()
  pelton_python_tests(${folder})
endfunction()

# The tests of every layer declared so far.
function(pelton_layer_tests)
  get_property(layers GLOBAL PROPERTY PELTON_LAYERS)
  foreach(layer ${layers})
    get_property(folder GLOBAL PROPERTY PELTON_LAYER_FOLDER_${layer})
    get_property(more GLOBAL PROPERTY PELTON_LAYER_TESTS_${layer})
    pelton_folder_tests(${folder} LINKS pelton_${layer} ${more})
  endforeach()
endfunction()

if(PELTON_TESTS)
  enable_testing()
  pelton_find_pytest()
endif()
