# ddp_python_package(NAME OUT): appends to OUT the folders of a Python package that a wheel may have put libraries into:
# in the environment that builds a wheel, in an active virtual or conda environment, in the project's own .venv, and where
# the Python on PATH imports it from.
function(ddp_python_package name out)
  set(_folders ${${out}})
  set(_wheel_env "")
  if(SKBUILD AND Python_EXECUTABLE)
    get_filename_component(_wheel_env "${Python_EXECUTABLE}/../.." ABSOLUTE)
  endif()
  foreach(_env IN ITEMS "${_wheel_env}" "$ENV{VIRTUAL_ENV}" "$ENV{CONDA_PREFIX}" "${PROJECT_SOURCE_DIR}/.venv")
    if(_env)
      file(GLOB _in_env "${_env}/lib/python3*/site-packages/${name}")
      list(APPEND _folders ${_in_env})
    endif()
  endforeach()
  find_program(_python NAMES python3 python NO_CACHE)
  if(_python)
    execute_process(COMMAND ${_python} -c
      "import importlib.util as u; s = u.find_spec('${name}'); print(s.submodule_search_locations[0] if s else '')"
      OUTPUT_VARIABLE _found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(_found)
      list(APPEND _folders "${_found}")
    endif()
  endif()
  set(${out} ${_folders} PARENT_SCOPE)
endfunction()
