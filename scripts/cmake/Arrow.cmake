# Defines ddp::arrow when Arrow's C++ libraries and headers are found inside a pyarrow wheel: what trainer needs to keep
# snapshots in S3 or Google Cloud Storage and to read tables of texts. Without it trainer is built all the same and refuses such paths.
#
# Looked for, in this order: ARROW_ROOT (cache or environment), an active virtual environment, the project's own .venv,
# the Python on PATH.
set(DDP_ARROW AUTO CACHE STRING "Build the S3 and Google Cloud Storage module of trainer: AUTO (when pyarrow is found), ON, OFF")
set(ARROW_ROOT "$ENV{ARROW_ROOT}" CACHE PATH "pyarrow: the folder that holds include/ and libarrow.so.*")

set(_candidates "")
if(ARROW_ROOT)
  list(APPEND _candidates "${ARROW_ROOT}")
else()
  ddp_python_package(pyarrow _candidates)
endif()

set(_why "pyarrow was not found: ./scripts/setup.sh --object-stores installs it, or cmake -DARROW_ROOT=<folder with include/ and libarrow.so.*>")
set(_root "")
if(DDP_ARROW STREQUAL "OFF")
  set(_why "DDP_ARROW=OFF")
elseif(DDP_ARROW STREQUAL "AUTO" AND NOT DDP_BUILD_TRAINER)
  set(_why "DDP_BUILD_TRAINER=OFF")
else()
  foreach(_candidate IN LISTS _candidates)
    # The wheel has no unversioned links. S3 lies in a library of its own since Arrow 26.
    file(GLOB _libs "${_candidate}/libarrow.so.*" "${_candidate}/libarrow_s3.so.*" "${_candidate}/libparquet.so.*")
    list(LENGTH _libs _count)
    if(_count EQUAL 3 AND EXISTS "${_candidate}/include/arrow/filesystem/s3fs.h"
       AND EXISTS "${_candidate}/include/arrow/filesystem/gcsfs.h")
      get_filename_component(_root "${_candidate}" REALPATH)
      break()
    elseif(EXISTS "${_candidate}")
      set(_why "${_candidate} holds no libarrow_s3 with headers; pyarrow 26 does")
    endif()
  endforeach()
endif()

if(_root)
  file(STRINGS "${_root}/include/arrow/util/config.h" _version REGEX "ARROW_VERSION_STRING")
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" _version "${_version}")
  add_library(ddp::arrow INTERFACE IMPORTED)
  target_include_directories(ddp::arrow SYSTEM INTERFACE "${_root}/include")
  target_link_libraries(ddp::arrow INTERFACE ${_libs})
  set(DDP_ARROW_RPATH "${_root}")
  message(STATUS "S3 and Google Cloud Storage module of trainer: yes (Arrow ${_version}: ${_root})")
elseif(DDP_ARROW STREQUAL "ON")
  message(FATAL_ERROR "DDP_ARROW=ON, but ${_why}")
else()
  message(STATUS "S3 and Google Cloud Storage module of trainer: no (${_why})")
endif()
