# SPDX-License-Identifier: Apache-2.0
# Third-party libraries, each as dep_<name>. docs/dependencies.md says why each was chosen.
find_package(Threads REQUIRED)
# PELTON_DEPS_DIR: a folder with include/ and lib/ for machines whose distribution lacks some of these;
# tools/fetch_onednn.sh fills the default one.
set(PELTON_DEPS_DIR "${CMAKE_SOURCE_DIR}/.deps" CACHE PATH "Extra prefix searched for headers and libraries")
if(PELTON_DEPS_DIR)
  list(PREPEND CMAKE_PREFIX_PATH ${PELTON_DEPS_DIR})
endif()

# Optional libraries that are off as if they were absent, such as "onednn;boost" (tools/check_without.sh).
set(PELTON_WITHOUT "" CACHE STRING "Optional libraries to do without")

# dep_<name> from one header (and one library file, if given). REQUIRED by default.
function(pelton_dep name)
  cmake_parse_arguments(ARG "OPTIONAL" "HEADER;LIBRARY;SUFFIX" "DEFINES" ${ARGN})
  add_library(dep_${name} INTERFACE)
  find_path(DEP_${name}_INCLUDE ${ARG_HEADER} PATH_SUFFIXES ${ARG_SUFFIX})
  if(ARG_LIBRARY)
    find_library(DEP_${name}_LIBRARY ${ARG_LIBRARY})
  endif()
  set(left_out FALSE)
  if(name IN_LIST PELTON_WITHOUT)
    if(NOT ARG_OPTIONAL)
      message(FATAL_ERROR "PELTON_WITHOUT names ${name}, which the build needs")
    endif()
    set(left_out TRUE)
  endif()
  if(left_out OR NOT DEP_${name}_INCLUDE OR (ARG_LIBRARY AND NOT DEP_${name}_LIBRARY))
    if(NOT ARG_OPTIONAL)
      message(FATAL_ERROR "${name} not found (header ${ARG_HEADER}): run tools/install_deps.sh or set PELTON_DEPS_DIR")
    endif()
    message(STATUS "pelton: ${name} not found, the parts that need it are off")
    set(PELTON_HAVE_${name} OFF PARENT_SCOPE)
    return()
  endif()
  set(PELTON_HAVE_${name} ON PARENT_SCOPE)
  target_include_directories(dep_${name} SYSTEM INTERFACE ${DEP_${name}_INCLUDE})
  if(ARG_LIBRARY)
    target_link_libraries(dep_${name} INTERFACE ${DEP_${name}_LIBRARY})
  endif()
  target_compile_definitions(dep_${name} INTERFACE ${ARG_DEFINES})
endfunction()

pelton_dep(spdlog HEADER spdlog/spdlog.h DEFINES FMT_HEADER_ONLY SPDLOG_FMT_EXTERNAL)
pelton_dep(tbb HEADER oneapi/tbb/task_arena.h LIBRARY tbb)
pelton_dep(crypto HEADER openssl/evp.h LIBRARY crypto)
pelton_dep(xxhash HEADER xxhash.h DEFINES XXH_INLINE_ALL)
pelton_dep(zlib HEADER zlib.h LIBRARY z)
pelton_dep(doctest HEADER doctest/doctest.h OPTIONAL)  # tests only: make demo does without
if(NOT PELTON_HAVE_doctest)
  set(PELTON_TESTS OFF)
endif()
pelton_dep(cli11 HEADER CLI/CLI.hpp)
pelton_dep(json HEADER nlohmann/json.hpp)
pelton_dep(toml HEADER toml++/toml.h)
pelton_dep(hwy HEADER hwy/highway.h OPTIONAL DEFINES PELTON_HAVE_HWY=1)  # headers only: dispatch is ours
pelton_dep(onednn HEADER oneapi/dnnl/dnnl.hpp LIBRARY dnnl OPTIONAL DEFINES PELTON_HAVE_ONEDNN=1)
if(PELTON_HAVE_onednn)
  # Only a build on oneTBB shares the process's one pool; Debian's package is an OpenMP build.
  file(STRINGS ${DEP_onednn_INCLUDE}/oneapi/dnnl/dnnl_config.h runtime
       REGEX "^#define DNNL_CPU_THREADING_RUNTIME DNNL_RUNTIME_TBB")
  if(NOT runtime)
    message(STATUS "pelton: oneDNN in ${DEP_onednn_INCLUDE} is not built on oneTBB, so it is off (tools/fetch_onednn.sh)")
    set(PELTON_HAVE_onednn OFF)
    set_target_properties(dep_onednn PROPERTIES INTERFACE_LINK_LIBRARIES "" INTERFACE_SYSTEM_INCLUDE_DIRECTORIES ""
                                                INTERFACE_INCLUDE_DIRECTORIES "" INTERFACE_COMPILE_DEFINITIONS "")
  endif()
endif()
target_link_libraries(dep_tbb INTERFACE Threads::Threads)
# Codecs of the input pipeline: a build without one refuses that format by name.
pelton_dep(jpeg HEADER jpeglib.h LIBRARY jpeg OPTIONAL DEFINES PELTON_HAVE_JPEG=1)
pelton_dep(png HEADER png.h LIBRARY png OPTIONAL DEFINES PELTON_HAVE_PNG=1)
pelton_dep(webp HEADER webp/decode.h LIBRARY webp OPTIONAL DEFINES PELTON_HAVE_WEBP=1)
pelton_dep(tiff HEADER tiffio.h LIBRARY tiff OPTIONAL DEFINES PELTON_HAVE_TIFF=1)
pelton_dep(sndfile HEADER sndfile.h LIBRARY sndfile OPTIONAL DEFINES PELTON_HAVE_SNDFILE=1)
pelton_dep(curl HEADER curl/curl.h OPTIONAL DEFINES PELTON_HAVE_CURL=1)  # headers only: opened when a URL is read
pelton_dep(zstd HEADER zstd.h LIBRARY zstd OPTIONAL DEFINES PELTON_HAVE_ZSTD=1)

# The server: HTTP needs Boost (headers only) and simdjson, gRPC is on when all of its parts are there.
pelton_dep(boost HEADER boost/beast/http.hpp OPTIONAL)
pelton_dep(ssl HEADER openssl/ssl.h LIBRARY ssl OPTIONAL)
pelton_dep(simdjson HEADER simdjson.h LIBRARY simdjson OPTIONAL)
pelton_dep(protobuf HEADER google/protobuf/message.h LIBRARY protobuf OPTIONAL)
pelton_dep(grpc HEADER grpcpp/grpcpp.h LIBRARY grpc++ OPTIONAL)
find_program(PELTON_PROTOC protoc)
find_program(PELTON_GRPC_PLUGIN grpc_cpp_plugin)
find_library(DEP_grpc_core_LIBRARY grpc)
find_library(DEP_grpc_gpr_LIBRARY gpr)
find_library(DEP_grpc_reflection_LIBRARY grpc++_reflection)
find_library(DEP_grpc_absl_LIBRARY absl_synchronization)   # used by inline code of grpcpp's headers
if(PELTON_HAVE_grpc AND PELTON_HAVE_protobuf AND PELTON_PROTOC AND PELTON_GRPC_PLUGIN AND DEP_grpc_reflection_LIBRARY
   AND DEP_grpc_absl_LIBRARY)
  # The reflection service registers itself from a static object that nothing refers to.
  target_link_libraries(dep_grpc INTERFACE -Wl,--no-as-needed ${DEP_grpc_reflection_LIBRARY} -Wl,--as-needed
                                           ${DEP_grpc_core_LIBRARY} ${DEP_grpc_gpr_LIBRARY}
                                           ${DEP_grpc_absl_LIBRARY} dep_protobuf Threads::Threads)
  if(PELTON_SANITIZE STREQUAL thread)
    # Under the thread sanitizer protobuf's headers give map fields two members more, which the library, built without it,
    # does not know of: every message with a map would be written to at wrong places. The second line keeps what the
    # macro means for the standard library.
    target_compile_options(dep_protobuf INTERFACE -U__SANITIZE_THREAD__ -D_GLIBCXX_TSAN=1)
  endif()
elseif(PELTON_HAVE_grpc)
  message(STATUS "pelton: gRPC lacks protoc, its plug-in, protobuf or the reflection library, so it is off")
  set(PELTON_HAVE_grpc OFF)
endif()
