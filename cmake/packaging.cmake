# `cpack --preset deb` makes a Debian package of the program with its units, example configuration, manual pages and
# completion. The last two are written from --help of the built program when the package is made.
include(GNUInstallDirs)
find_program(TANDEM_PYTHON python3)

# A package of a build tree with tests needs the program alone.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)
install(TARGETS tandem RUNTIME DESTINATION bin)
install(CODE "
  execute_process(COMMAND \"${TANDEM_PYTHON}\" -B \"${CMAKE_SOURCE_DIR}/tools/packaging/make_manual.py\"
                          --tandem \"$<TARGET_FILE:tandem>\" --output \"${CMAKE_BINARY_DIR}/manual\"
                  COMMAND_ERROR_IS_FATAL ANY)
  file(GLOB pages \"${CMAKE_BINARY_DIR}/manual/man/*.1\")
  foreach(page \${pages})
    execute_process(COMMAND gzip -9nf \"\${page}\" COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
")
install(DIRECTORY ${CMAKE_BINARY_DIR}/manual/man/ DESTINATION share/man/man1 FILES_MATCHING PATTERN "*.1.gz")
install(FILES ${CMAKE_BINARY_DIR}/manual/completion/tandem DESTINATION share/bash-completion/completions)
set(systemd ${CMAKE_SOURCE_DIR}/deploy/systemd)
install(FILES ${systemd}/tandem-router.service ${systemd}/tandem-worker@.service DESTINATION lib/systemd/system)
install(FILES ${systemd}/tandem.sysusers DESTINATION lib/sysusers.d RENAME tandem.conf)
install(FILES ${systemd}/router.ini ${systemd}/worker-prefill.ini ${systemd}/worker-decode.ini
        DESTINATION /etc/tandem)
install(FILES ${systemd}/tandem-worker-gpu.conf ${CMAKE_SOURCE_DIR}/docs/packages.md
        ${CMAKE_SOURCE_DIR}/README.md DESTINATION share/doc/tandem)
install(FILES ${CMAKE_SOURCE_DIR}/deploy/deb/copyright DESTINATION share/doc/tandem)
foreach(file config.json generation_config.json tokenizer.json tokenizer_config.json model.safetensors README.md)
  install(FILES ${CMAKE_SOURCE_DIR}/models/sample/${file} DESTINATION share/tandem/models/sample)
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tandem)
set(CPACK_PACKAGE_CONTACT "Tandem maintainers <tandem@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Serves large language models with prefill and decode on separate workers")
set(CPACK_PACKAGE_DESCRIPTION
    "Router, prefill and decode workers and clients in one program, with an HTTP API as OpenAI's. Prefill workers compute prompts and send their KV to decode workers, on CPUs or NVIDIA GPUs.")
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_SET_DESTDIR ON)  # without it, what belongs into /etc would be installed on this machine
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # the libraries that the program links, in the versions that it needs
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "systemd | systemd-standalone-sysusers, bash-completion")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
    ${CMAKE_SOURCE_DIR}/deploy/deb/conffiles ${CMAKE_SOURCE_DIR}/deploy/deb/postinst
    ${CMAKE_SOURCE_DIR}/deploy/deb/prerm ${CMAKE_SOURCE_DIR}/deploy/deb/postrm)
include(CPack)
