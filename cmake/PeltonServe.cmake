# SPDX-License-Identifier: Apache-2.0
# The server's layers. Without Boost, OpenSSL and simdjson there is no server, only the load generator; without gRPC and
# protobuf both speak HTTP only.
pelton_layer(serve_core DIR serve/core SEES tensor DEPENDS json)
pelton_layer(serve_engine DIR serve/engine SEES serve_core runtime DEPENDS json)
set(python_dir ${CMAKE_SOURCE_DIR}/src/serve/engine/python)
set(python_sources ${CMAKE_BINARY_DIR}/python_sources.cc)
add_custom_command(
  OUTPUT ${python_sources}
  COMMAND ${CMAKE_COMMAND} -DOUT=${python_sources} -DWORKER=${python_dir}/worker.py -DUTILS=${python_dir}/utils.py
          -P ${CMAKE_SOURCE_DIR}/cmake/EmbedPython.cmake
  DEPENDS ${python_dir}/worker.py ${python_dir}/utils.py ${CMAKE_SOURCE_DIR}/cmake/EmbedPython.cmake
  VERBATIM)
target_sources(pelton_serve_engine PRIVATE ${python_sources})
target_link_libraries(pelton_serve_engine PRIVATE ${CMAKE_DL_LIBS})
if(PELTON_HAVE_boost AND PELTON_HAVE_simdjson AND PELTON_HAVE_ssl)
  set(serve_on ON)
  pelton_layer(serve_http DIR serve/http SEES serve_core DEPENDS boost simdjson ssl zlib json)
  if(PELTON_SANITIZE STREQUAL thread)
    target_compile_options(pelton_serve_http PRIVATE -Wno-tsan)  # Asio has fences, which the sanitizer does not follow
  endif()
endif()

if(PELTON_HAVE_grpc)
  set(proto_dir ${CMAKE_SOURCE_DIR}/src/serve/grpc/proto)
  set(out ${CMAKE_BINARY_DIR}/proto)
  file(MAKE_DIRECTORY ${out})
  set(generated ${out}/model_config.pb.cc ${out}/grpc_service.pb.cc ${out}/grpc_service.grpc.pb.cc)
  add_custom_command(
    OUTPUT ${generated}
    COMMAND ${PELTON_PROTOC} -I ${proto_dir} --cpp_out=${out} --grpc_out=${out}
            --plugin=protoc-gen-grpc=${PELTON_GRPC_PLUGIN} model_config.proto grpc_service.proto
    DEPENDS ${proto_dir}/model_config.proto ${proto_dir}/grpc_service.proto
    VERBATIM)
  add_library(pelton_serve_proto STATIC ${generated})
  target_include_directories(pelton_serve_proto SYSTEM PUBLIC ${out})
  target_link_libraries(pelton_serve_proto PUBLIC dep_grpc)
  file(GLOB grpc_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/serve/grpc/*.cc)
  pelton_layer(serve_grpc DIR serve/grpc SEES serve_core SOURCES ${grpc_sources} TESTS_SEE serve_proto)
  target_link_libraries(pelton_serve_grpc PRIVATE pelton_serve_proto)
else()
  pelton_layer(serve_grpc DIR serve/grpc SEES serve_core SOURCES ${CMAKE_SOURCE_DIR}/src/serve/grpc/off/no_grpc.cc)
  set_property(GLOBAL PROPERTY PELTON_LAYER_FOLDER_serve_grpc serve/grpc/off)  # its tests need the library
endif()

file(GLOB load_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/serve/loadtest/*.cc)
if(NOT PELTON_HAVE_grpc)
  list(FILTER load_sources EXCLUDE REGEX "/grpc_client.cc$")
  list(APPEND load_sources ${CMAKE_SOURCE_DIR}/src/serve/loadtest/grpc_off/no_grpc.cc)
endif()
pelton_layer(serve_loadtest DIR serve/loadtest SEES serve_core DEPENDS cli11 json SOURCES ${load_sources})
if(PELTON_HAVE_grpc)
  target_link_libraries(pelton_serve_loadtest PRIVATE pelton_serve_proto)
endif()

file(GLOB serve_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/serve/*.cc)
if(NOT serve_on)
  list(FILTER serve_sources EXCLUDE REGEX "/(run_server|otlp|log_writer).cc$")
  list(APPEND serve_sources ${CMAKE_SOURCE_DIR}/src/serve/off/no_server.cc)
endif()
pelton_layer(serve DIR serve SEES serve_core serve_engine DEPENDS cli11 toml SOURCES ${serve_sources})
if(serve_on)
  target_link_libraries(pelton_serve PUBLIC pelton_serve_http pelton_serve_grpc)
endif()

# What the thread sanitizer has to be told of gRPC's libraries, which are built without it.
function(pelton_grpc_order)
  if(PELTON_SANITIZE STREQUAL thread AND TARGET test_serve_grpc)
    set(file ${CMAKE_SOURCE_DIR}/tests/serve/grpc/happens_before.cc)
    target_sources(test_serve_grpc PRIVATE ${file})
    find_library(DEP_grpc_status_LIBRARY absl_status REQUIRED)
    target_link_libraries(test_serve_grpc PRIVATE ${DEP_grpc_status_LIBRARY} ${CMAKE_DL_LIBS})
    set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS -fno-sanitize=thread)
  endif()
endfunction()
