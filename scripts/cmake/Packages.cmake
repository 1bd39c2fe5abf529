# `cpack -G 'DEB;TGZ'` in a build tree, or scripts/package.sh: a package of ddp-run alone, which needs nothing, and one of
# what is linked with LibTorch. LibTorch is in no distribution in a fitting version, so no package can depend on it:
# the description names it, and the installed programs look for it and say what to install.
set(CPACK_PACKAGE_NAME ddp-run)
set(CPACK_PACKAGE_VENDOR "the ddp-run authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "torchrun-compatible launcher, LibTorch DDP trainer")
set(CPACK_PACKAGE_CONTACT "the ddp-run authors <ddp-run@localhost>")
set(CPACK_PACKAGE_FILE_NAME "ddp-run-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_PACKAGE_CHECKSUM SHA256)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL launcher)
if(DDP_BUILD_TRAINER)
  list(APPEND CPACK_COMPONENTS_ALL trainer)
endif()
set(CPACK_COMPONENTS_GROUPING IGNORE)

# Both archives unpack into one folder, in which ddp-run finds trainer.
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_CURRENT_LIST_DIR}/PackagesByFormat.cmake)
set(CPACK_ARCHIVE_LAUNCHER_FILE_NAME "${CPACK_PACKAGE_FILE_NAME}")
set(CPACK_ARCHIVE_TRAINER_FILE_NAME
    "ddp-trainer-${PROJECT_VERSION}-torch${DDP_TORCH_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR}")

# What Debian wants besides, in .deb only.
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/DebianFiles.cmake)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
if(CMAKE_CROSSCOMPILING AND CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")  # else cpack asks dpkg, which names this machine's
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
endif()
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_LAUNCHER_PACKAGE_NAME ddp-run)
set(CPACK_COMPONENT_LAUNCHER_DESCRIPTION "ddp-run starts one process per GPU or CPU share with torchrun's
environment, restarts the group when one fails, and leaves no orphans.
One static program: it needs no Python, no torch and no other package.")
set(CPACK_DEBIAN_TRAINER_PACKAGE_NAME ddp-trainer)
set(CPACK_DEBIAN_TRAINER_PACKAGE_DEPENDS "ddp-run (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_TRAINER_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${DDP_TORCH_RPATH} ${DDP_ARROW_RPATH})
set(CPACK_COMPONENT_TRAINER_DESCRIPTION "trainer is a data-parallel trainer in C++ on c10d's Reducer, with NCCL
or Gloo. Needs LibTorch ${DDP_TORCH_VERSION},
which is no package of this distribution: pip install 'torch==${DDP_TORCH_VERSION}.*'
in an environment that is active when trainer starts, or TORCH_ROOT set to
the folder of such a torch.")
include(CPack)
