# Where things are installed, below a prefix or into a wheel, and which part they belong to: `launcher` (static, needs
# nothing), `trainer` (what is linked with LibTorch), `dev` (the workers' contract for other programs).
#
# Programs linked with LibTorch lie in a folder that names its version, beside the place where a wheel of torch would lie.
# No path of this machine gets into them: bin/trainer looks for torch and starts the program that fits.
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

# The documentation lies as in the repository, so that its links lead to the same files (tests/packages checks them).
set(_doc ${DDP_SHARE_DIR}/doc/ddp-run)
foreach(_file IN ITEMS README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE NOTICE launcher/README.md trainer/README.md
        data/README.md)
  get_filename_component(_folder ${_file} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/${_file} DESTINATION ${_doc}/${_folder} COMPONENT launcher)
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs ${PROJECT_SOURCE_DIR}/configs DESTINATION ${_doc} COMPONENT launcher
        FILES_MATCHING PATTERN *.md PATTERN *.svg PATTERN *.png PATTERN *.yaml)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples DESTINATION ${_doc} COMPONENT launcher PATTERN __pycache__ EXCLUDE)
# Static programs contain libraries under these licences, which want their texts beside them. Every Debian has the texts.
set(_gnu_licences /usr/share/common-licenses/LGPL-2.1 /usr/share/common-licenses/LGPL-3 /usr/share/common-licenses/GPL-3)
install(FILES ${_gnu_licences} DESTINATION ${_doc}/licenses COMPONENT launcher OPTIONAL)
if(DDP_BUILD_TRAINER AND NOT SKBUILD)  # a package of its own
  set(_doc ${DDP_SHARE_DIR}/doc/ddp-trainer)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/NOTICE DESTINATION ${_doc} COMPONENT trainer)
  install(FILES ${_gnu_licences} DESTINATION ${_doc}/licenses COMPONENT trainer OPTIONAL)
endif()
