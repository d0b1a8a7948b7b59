# Sourced by the other scripts: makes sure that cargo, LLVM's libraries and a C compiler are there, and sets
# ANSC_FEATURES to the cargo flags that choose the LLVM that was found (22, or 19 where a
# distribution has only that).

ansc_have() { command -v "$1" >/dev/null 2>&1; }

ansc_apt() {
    local sudo=""
    [ "$(id -u)" = 0 ] || sudo="sudo"
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get "$@"
}

ansc_packages_of() {
    echo "llvm-$1-dev libpolly-$1-dev libzstd-dev libxml2-dev zlib1g-dev libffi-dev"
}

ansc_install_llvm() {
    ansc_have apt-get || {
        echo "LLVM 22 or 19 with its static libraries is needed, and this is not a Debian or Ubuntu system: install it by hand" >&2
        return 1
    }
    ansc_apt update -qq
    local version
    for version in 22 19; do
        if apt-cache show "llvm-$version-dev" >/dev/null 2>&1; then
            # shellcheck disable=SC2046
            ansc_apt install -y -qq --no-install-recommends $(ansc_packages_of "$version") build-essential
            return
        fi
    done
    echo "this distribution has neither llvm-22-dev nor llvm-19-dev" >&2
    return 1
}

ansc_have cargo || {
    echo "cargo is needed, of Rust 1.90 or newer, and is not on the PATH; rustup installs it to ~/.cargo/bin" >&2
    exit 3
}
ansc_have llvm-config-22 || ansc_have llvm-config-19 || ansc_install_llvm
{ ansc_have ld && ansc_have cc; } || ansc_apt install -y -qq --no-install-recommends build-essential
if ansc_have llvm-config-22; then
    ANSC_LLVM=22
    ANSC_FEATURES=()
else
    ANSC_LLVM=19
    ANSC_FEATURES=(--no-default-features --features llvm19,cuda,fleet)
fi
