# Defines ddp::torch (CPU libraries and headers) and, when its headers are present, ddp::torch_cuda.
#
# Own imported targets instead of find_package(Torch): on a CUDA build of torch that package stops without a full
# CUDA toolkit. Looked for, in this order: TORCH_ROOT (cache or environment), Torch_DIR, CMAKE_PREFIX_PATH (a LibTorch
# zip or a conda environment), an active virtual environment, the project's own .venv, the Python on PATH.
set(TORCH_ROOT "$ENV{TORCH_ROOT}" CACHE PATH "LibTorch: the folder that holds include/ and lib/")

set(_candidates "")
if(TORCH_ROOT)
  # An explicit choice is never replaced silently by something else.
  list(APPEND _candidates "${TORCH_ROOT}" "${TORCH_ROOT}/torch")
else()
  foreach(_dir IN ITEMS "${Torch_DIR}" "$ENV{Torch_DIR}")
    if(_dir)
      list(APPEND _candidates "${_dir}/../../..")
    endif()
  endforeach()
  foreach(_prefix IN LISTS CMAKE_PREFIX_PATH)
    file(GLOB _in_prefix "${_prefix}/lib/python3*/site-packages/torch")
    list(APPEND _candidates "${_prefix}" "${_prefix}/../.." ${_in_prefix})
  endforeach()
  ddp_python_package(torch _candidates)
endif()

set(_root "")
foreach(_candidate IN LISTS _candidates)
  if(EXISTS "${_candidate}/include/torch/csrc/api/include/torch/torch.h"
     AND EXISTS "${_candidate}/lib/libtorch_cpu.so")
    get_filename_component(_root "${_candidate}" REALPATH)
    break()
  endif()
endforeach()
if(NOT _root)
  return()
endif()

file(STRINGS "${_root}/include/torch/csrc/api/include/torch/version.h" _version_lines REGEX "TORCH_VERSION_(MAJOR|MINOR|PATCH)")
if(NOT _version_lines AND EXISTS "${_root}/include/torch/headeronly/version.h")
  file(STRINGS "${_root}/include/torch/headeronly/version.h" _version_lines REGEX "TORCH_VERSION_(MAJOR|MINOR|PATCH)")
endif()
string(REGEX MATCH "MAJOR ([0-9]+)" _ "${_version_lines}")
set(_major "${CMAKE_MATCH_1}")
string(REGEX MATCH "MINOR ([0-9]+)" _ "${_version_lines}")
set(DDP_TORCH_VERSION "${_major}.${CMAKE_MATCH_1}")
if(DDP_TORCH_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "LibTorch ${DDP_TORCH_VERSION} in ${_root} is too old; 2.11 to 2.15 are supported")
endif()
message(STATUS "LibTorch ${DDP_TORCH_VERSION}: ${_root}")

# A wheel keeps the CUDA libraries in a sibling folder nvidia/.
file(GLOB _nvidia_libs "${_root}/../nvidia/*/lib")
file(GLOB _nvidia_includes "${_root}/../nvidia/*/include")
set(DDP_TORCH_RPATH "${_root}/lib" ${_nvidia_libs})
set(DDP_TORCH_ROOT "${_root}")
set(DDP_NVIDIA_INCLUDES ${_nvidia_includes})

add_library(ddp::torch INTERFACE IMPORTED)
target_include_directories(ddp::torch SYSTEM INTERFACE
  "${_root}/include" "${_root}/include/torch/csrc/api/include")
# torch's own copy of fmt, header-only: a file that sees torch never sees another fmt.
target_compile_definitions(ddp::torch INTERFACE FMT_HEADER_ONLY=1 USE_C10D_GLOO USE_DISTRIBUTED)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  # GCC 14 warns of the vector<bool> in each torch::autograd::Function::apply().
  target_compile_options(ddp::torch INTERFACE -Wno-array-bounds -Wno-stringop-overflow)
endif()
target_link_libraries(ddp::torch INTERFACE "${_root}/lib/libtorch_cpu.so" "${_root}/lib/libc10.so")
foreach(_dir IN LISTS _nvidia_libs)
  target_link_options(ddp::torch INTERFACE "LINKER:-rpath-link,${_dir}")
endforeach()

if(DDP_CUDA STREQUAL "OFF" OR NOT EXISTS "${_root}/lib/libtorch_cuda.so")
  set(_why "DDP_CUDA=${DDP_CUDA}; this LibTorch has no libtorch_cuda.so")
else()
  # Beside a torch from wheels only theirs: the headers of another CUDA or NCCL on the machine have other structs.
  set(_elsewhere "")
  if(_nvidia_includes)
    set(_elsewhere NO_DEFAULT_PATH)
  endif()
  find_path(DDP_CUDA_INCLUDE cuda_runtime_api.h HINTS ${_nvidia_includes} "${_root}/include" ${_elsewhere})
  find_path(DDP_NCCL_INCLUDE nccl.h HINTS ${_nvidia_includes} "${_root}/include" ${_elsewhere})
  if(NOT _nvidia_includes)
    set(_targets targets/x86_64-linux/include targets/sbsa-linux/include)  # sbsa: aarch64
    find_path(DDP_CUDA_INCLUDE cuda_runtime_api.h
      HINTS ENV CUDA_HOME PATHS /usr/local/cuda /opt/cuda PATH_SUFFIXES include ${_targets})
    find_path(DDP_NCCL_INCLUDE nccl.h
      HINTS ENV NCCL_HOME ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES include ${_targets})
  endif()
  # Included by the runtime's headers, but wheels of their own (nvidia-cuda-crt); nothing of theirs is in torch's interface.
  find_path(DDP_CUSPARSE_INCLUDE cusparse.h HINTS ${DDP_CUDA_INCLUDE} ${_nvidia_includes})
  find_path(DDP_CUDA_CRT_INCLUDE crt/host_defines.h HINTS ${DDP_CUDA_INCLUDE} ${_nvidia_includes})
  mark_as_advanced(DDP_CUDA_INCLUDE DDP_CUDA_CRT_INCLUDE DDP_NCCL_INCLUDE DDP_CUSPARSE_INCLUDE)
  set(_lacking "")
  foreach(_header IN ITEMS "CUDA:cuda_runtime_api.h" "CUDA_CRT:crt/host_defines.h" "CUSPARSE:cusparse.h" "NCCL:nccl.h")
    string(REPLACE ":" ";" _header "${_header}")
    list(GET _header 0 _name)
    if(NOT DDP_${_name}_INCLUDE)
      list(GET _header 1 _file)
      string(APPEND _lacking " ${_file}")
    endif()
  endforeach()
  set(_why "these headers were not found:${_lacking}")
  # A struct of NCCL is part of torch's interface, and grows: with another header it is written beyond its end.
  file(GLOB _metadata "${_root}/../torch-*.dist-info/METADATA")
  if(NOT _lacking AND _metadata)
    file(STRINGS "${_metadata}" _of_torch REGEX "^Requires-Dist: nvidia-nccl-cu[0-9]+==")
    file(STRINGS "${DDP_NCCL_INCLUDE}/nccl.h" _of_header REGEX "^#define NCCL_(MAJOR|MINOR) ")
    string(REGEX MATCH "==([0-9]+\\.[0-9]+)" _ "${_of_torch}")
    set(_of_torch "${CMAKE_MATCH_1}")
    string(REGEX REPLACE "[^0-9;]" "" _of_header "${_of_header}")
    list(JOIN _of_header "." _of_header)
    if(_of_torch AND NOT _of_torch VERSION_EQUAL _of_header)
      string(APPEND _lacking " nccl.h")
      set(_why "${DDP_NCCL_INCLUDE}/nccl.h is of NCCL ${_of_header}, and this LibTorch was built with ${_of_torch}")
    endif()
  endif()
  if(NOT _lacking)
    add_library(ddp::torch_cuda INTERFACE IMPORTED)
    target_link_libraries(ddp::torch_cuda INTERFACE ddp::torch
      -Wl,--no-as-needed "${_root}/lib/libtorch_cuda.so" "${_root}/lib/libc10_cuda.so")
    # The libraries behind libtorch_cuda.so (cuDNN, NVSHMEM, ...) are its own business, found when it is loaded.
    target_link_options(ddp::torch_cuda INTERFACE LINKER:--unresolved-symbols=ignore-in-shared-libs)
    target_include_directories(ddp::torch_cuda SYSTEM INTERFACE
      "${DDP_CUDA_INCLUDE}" "${DDP_CUDA_CRT_INCLUDE}" "${DDP_CUSPARSE_INCLUDE}" "${DDP_NCCL_INCLUDE}")
    target_compile_definitions(ddp::torch_cuda INTERFACE USE_C10D_NCCL)
  endif()
endif()
if(TARGET ddp::torch_cuda)
  message(STATUS "CUDA module of trainer: yes (${DDP_CUDA_INCLUDE}, ${DDP_NCCL_INCLUDE})")
elseif(DDP_CUDA STREQUAL "ON")
  message(FATAL_ERROR "DDP_CUDA=ON, but ${_why}; ./scripts/setup.sh --gpu installs the full set")
else()
  message(STATUS "CUDA module of trainer: no (${_why})")
endif()
