# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts into a prefix: the command, libpelton.so with its C interface, the CMake package.
# tools/make_dist.py makes the prefix relocatable and adds the libraries it needs.
include(GNUInstallDirs)
# A plain install finds its libraries where the build found them; tools/make_dist.py bundles them instead.
foreach(target pelton pelton_shared)
  if(TARGET ${target})
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "${PELTON_DEPS_DIR}/lib")
  endif()
endforeach()
if(TARGET pelton)
  install(TARGETS pelton RUNTIME DESTINATION bin)
endif()
if(TARGET pelton_shared)
  install(TARGETS pelton_shared LIBRARY DESTINATION lib)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/pelton DESTINATION include)
  include(CMakePackageConfigHelpers)
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/PeltonConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_SOURCE_DIR}/cmake/PeltonConfig.cmake ${CMAKE_BINARY_DIR}/PeltonConfigVersion.cmake
          DESTINATION lib/cmake/Pelton)
endif()
