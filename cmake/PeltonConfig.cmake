# SPDX-License-Identifier: Apache-2.0
# find_package(Pelton) gives Pelton::pelton, the C interface and the C++ headers over it. Works wherever the
# package is unpacked.
get_filename_component(_pelton_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET Pelton::pelton)
  add_library(Pelton::pelton SHARED IMPORTED)
  set_target_properties(Pelton::pelton PROPERTIES
    IMPORTED_LOCATION "${_pelton_prefix}/lib/libpelton.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_pelton_prefix}/include"
    INTERFACE_COMPILE_FEATURES cxx_std_20)
endif()
unset(_pelton_prefix)
