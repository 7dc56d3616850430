# Sourced by the other scripts: installing a package with whatever package manager this system has, if we may.

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

may_be_root() {
  [ "$(id -u)" -eq 0 ] || { command -v sudo && sudo -n true; } >/dev/null 2>&1
}

# Prints the package manager's name; fails when there is none that we may use.
package_manager() {
  local manager
  for manager in apt-get dnf yum apk; do
    if command -v "$manager" >/dev/null 2>&1; then
      may_be_root && echo "$manager"
      return
    fi
  done
  # Homebrew is the one that must not be run as root.
  command -v brew >/dev/null 2>&1 && [ "$(id -u)" -ne 0 ] && echo brew
}

# install_one MANAGER PACKAGE: silent; the caller says what it means for the user when this fails.
install_one() {
  case "$1" in
    apt-get) as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$2" ;;
    dnf | yum) as_root "$1" install -y "$2" ;;
    apk) as_root apk add --no-cache "$2" ;;
    brew) brew install "$2" ;;
  esac </dev/null >/dev/null 2>&1
}

# install_first MANAGER PACKAGE...: installs the first of the packages that this system has.
install_first() {
  local manager=$1 package
  shift
  if [ "$manager" = apt-get ]; then
    # The lists of a fresh image are empty; stale ones name versions that are gone.
    as_root apt-get update </dev/null >/dev/null 2>&1 || true
  fi
  for package in "$@"; do
    install_one "$manager" "$package" && return
  done
  return 1
}
