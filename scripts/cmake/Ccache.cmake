# Uses ccache when it is installed; the sloppiness is what ccache asks for with precompiled headers.
find_program(DDP_CCACHE ccache)
mark_as_advanced(DDP_CCACHE)
if(DDP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${DDP_CCACHE})
endif()
