# SPDX-License-Identifier: Apache-2.0
# Build options (all PELTON_*) and the flags every target shares.
option(PELTON_WERROR "Treat warnings as errors" ON)
option(PELTON_TESTS "Build the tests" ON)
set(PELTON_SANITIZE "" CACHE STRING "Sanitizers for everything: address,undefined or thread")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

add_library(pelton_flags INTERFACE)
target_include_directories(pelton_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
set(host "$<COMPILE_LANGUAGE:C,CXX>")  # nvcc takes none of these
target_compile_options(pelton_flags INTERFACE "$<${host}:-Wall;-Wextra;-Wno-missing-field-initializers>"
                                              "$<${host}:-fno-math-errno;-ffp-contract=off;-fvisibility=hidden>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(pelton_flags INTERFACE "$<${host}:-Wno-restrict>")  # g++ 12 warns about its own std::string
endif()
if(PELTON_WERROR)
  target_compile_options(pelton_flags INTERFACE "$<${host}:-Werror>")
endif()
if(PELTON_SANITIZE)
  target_compile_options(pelton_flags INTERFACE
                         "$<${host}:-fsanitize=${PELTON_SANITIZE};-fno-sanitize-recover=all;-fno-omit-frame-pointer;-g1>")
  target_link_options(pelton_flags INTERFACE -fsanitize=${PELTON_SANITIZE})
endif()

find_program(PELTON_CCACHE ccache)
if(PELTON_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${PELTON_CCACHE})
endif()
# g++ leaves empty unwind entries in front of cold parts, and lld 14 keeps the empty one of two at an address: an
# exception that passes such a part ends the process. gold and the default linker keep both; clang makes no such parts.
find_program(PELTON_LLD ld.lld)
find_program(PELTON_GOLD ld.gold)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND PELTON_LLD)
  add_link_options(-fuse-ld=lld)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND PELTON_GOLD)
  add_link_options(-fuse-ld=gold)
endif()
