# Where things are installed, below a prefix or into a wheel, and which part they belong to: `launcher` (static, needs
# nothing), `trainer` (what is linked with LibTorch), `dev` (the workers' contract for other programs).
#
# Programs linked with LibTorch lie in a folder that names its version, beside the place where a wheel of torch would lie.
# No path of this machine gets into them: bin/trainer and bin/ddp-store look for torch and start the program that fits.
set(DDP_PROGRAMS_DIR lib/ddp_run)
set(DDP_SHARE_DIR share)
set(DDP_BIN_DIR bin)
if(SKBUILD)  # scikit-build-core: a wheel
  set(DDP_PROGRAMS_DIR ${SKBUILD_PLATLIB_DIR}/ddp_run)
  set(DDP_SHARE_DIR ${SKBUILD_DATA_DIR}/share)
  set(DDP_BIN_DIR ${SKBUILD_SCRIPTS_DIR})
endif()

# ddp_install_with_torch(TARGET...): a program or module linked with LibTorch.
function(ddp_install_with_torch)
  set(folder ${DDP_PROGRAMS_DIR}/torch-${DDP_TORCH_VERSION})
  install(TARGETS ${ARGN} RUNTIME DESTINATION ${folder} COMPONENT trainer LIBRARY DESTINATION ${folder} COMPONENT trainer)
  # As built by setup.sh, and as installed beside wheels of torch and pyarrow.
  set_target_properties(${ARGN} PROPERTIES BUILD_RPATH "${DDP_TORCH_RPATH};${DDP_ARROW_RPATH}"
                        INSTALL_RPATH "$ORIGIN/../../torch/lib:$ORIGIN/../../pyarrow")
endfunction()

install(FILES ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/NOTICE ${CMAKE_SOURCE_DIR}/README.md
        ${CMAKE_SOURCE_DIR}/CHANGELOG.md ${CMAKE_SOURCE_DIR}/launcher/README.md
        DESTINATION ${DDP_SHARE_DIR}/doc/ddp-run COMPONENT launcher)
