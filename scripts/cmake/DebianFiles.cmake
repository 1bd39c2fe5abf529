# Run by cpack before it packs a staged component: what Debian's policy asks of a package, made from LICENSE, NOTICE and
# CHANGELOG.md as they were installed.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()

# Lines of foreign text as a field's value: each begins with a blank, an empty one is " .".
function(ddp_field_lines text out)
  string(REGEX REPLACE "\n+$" "" text "${text}")
  string(REGEX REPLACE "\n" "\n " text "${text}")
  string(REGEX REPLACE "\n (\n)" "\n .\\1" text "${text}")
  string(REGEX REPLACE "\n (\n)" "\n .\\1" text "${text}")
  set(${out} " ${text}" PARENT_SCOPE)
endfunction()

# Compressed as policy asks, without a time in it.
function(ddp_gzip file)
  execute_process(COMMAND gzip -9nf "${file}" COMMAND_ERROR_IS_FATAL ANY)
endfunction()

function(ddp_copyright folder)
  file(READ "${folder}/NOTICE" notice)
  string(REGEX MATCH "Copyright ([^\n]*)" holder "${notice}")
  set(holder "${CMAKE_MATCH_1}")
  ddp_field_lines("${notice}" notice)
  file(WRITE "${folder}/copyright" "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: ddp-run
Comment: The rest of this field is the file NOTICE, which names what is linked in and holds the licence texts.
 The GNU licences are in /usr/share/common-licenses.
 .
${notice}

Files: *
Copyright: ${holder}
License: Apache-2.0

License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.
")
endfunction()

# Debian's own format; what changed is in CHANGELOG.md.
function(ddp_changelog folder package)
  string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
  file(WRITE "${folder}/changelog" "${package} (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium

  * See /usr/share/doc/ddp-run/CHANGELOG.md in the package ddp-run.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")
  ddp_gzip("${folder}/changelog")
endfunction()

file(GLOB components "${CPACK_TEMPORARY_DIRECTORY}/*")
foreach(component IN LISTS components)
  file(GLOB documents "${component}/usr/share/doc/*")
  foreach(folder IN LISTS documents)
    get_filename_component(package "${folder}" NAME)
    file(REMOVE_RECURSE "${folder}/licenses")  # every Debian has them
    ddp_copyright("${folder}")
    ddp_changelog("${folder}" ${package})
  endforeach()
  file(GLOB pages "${component}/usr/share/man/man1/*.1")
  foreach(page IN LISTS pages)
    ddp_gzip("${page}")
  endforeach()
endforeach()
