# A text file as a constant of a program:
#   ddp_embed_text(TARGET FILE NAMESPACE::NAME)     extern const std::string_view NAME;
# FILE stays a file that editors, browsers and checkers understand, and a change in it rebuilds the constant.
function(ddp_embed_text target file name)
  get_filename_component(source ${file} ABSOLUTE)
  get_filename_component(stem ${file} NAME)
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/embedded/${stem}.cc)
  add_custom_command(OUTPUT ${generated} DEPENDS ${source} ${CMAKE_CURRENT_FUNCTION_LIST_FILE}
    COMMAND ${CMAKE_COMMAND} -DSOURCE=${source} -DGENERATED=${generated} -DNAME=${name} -P ${CMAKE_CURRENT_FUNCTION_LIST_FILE}
    VERBATIM)
  target_sources(${target} PRIVATE ${generated})
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
  string(REGEX MATCH "^(.*)::([^:]+)$" matched ${NAME})
  set(namespace ${CMAKE_MATCH_1})
  set(constant ${CMAKE_MATCH_2})
  file(READ ${SOURCE} bytes HEX)
  string(LENGTH "${bytes}" digits)
  math(EXPR size "${digits} / 2")
  string(REGEX REPLACE "(..)" "'\\\\x\\1'," bytes "${bytes}")
  file(WRITE ${GENERATED} "#include <string_view>
namespace ${namespace} {
static constexpr char kEmbedded_${constant}[] = {${bytes}'\\0'};
extern const std::string_view ${constant};
const std::string_view ${constant}{kEmbedded_${constant}, ${size}};
}
")
endif()
