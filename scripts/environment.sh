# Virtual environments of the scripts; sourced by them, not run.

export PIP_DISABLE_PIP_VERSION_CHECK=1

# The interpreter to use: PYTHON if it is set, else the first that is 3.11 or newer.
find_python() {
    local name
    for name in ${PYTHON:-python3.11 python3 python3.12 python3.13 python}; do
        if "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    echo "No Python 3.11 or newer with venv found; name one with PYTHON=/path/to/python" >&2
    return 1
}

# make_environment FOLDER PYTHON REQUIREMENT [PIP OPTION...]
# Makes a virtual environment with the project in it (editable), or reuses one that is up to date. Sets VENV_PYTHON.
make_environment() {
    local folder=$1 python=$2 requirement=$3 stamp
    shift 3
    [[ $folder == /* ]] || folder=$PWD/$folder
    stamp=$("$python" -c '
import hashlib, sys
text = "\n".join([sys.version, *sys.argv[1:]]).encode() + open("pyproject.toml", "rb").read()
print(hashlib.sha256(text).hexdigest())' "$requirement" "$@")
    VENV_PYTHON=$folder/bin/python
    if [[ -x $VENV_PYTHON && $(cat "$folder/up-to-date" 2>/dev/null) == "$stamp" ]]; then
        return
    fi
    echo "Making $folder with $("$python" --version) (once; takes a minute)" >&2
    rm -rf "$folder"
    "$python" -m venv "$folder"
    "$VENV_PYTHON" -m pip install --quiet --quiet --editable "$requirement" "$@"
    echo "$stamp" >"$folder/up-to-date"
}
