#!/bin/bash
# wheel.sh [ARCH [FOLDER]]: builds the wheel of the Python package for users without a
# compiler, and puts it into FOLDER (default: build/wheel/dist): for CPython 3.9 and
# later (abi3), glibc 2.28 and later, and ARCH, x86_64 (the default) or aarch64. And
# wheel.sh sdist [FOLDER]: the sources that pip can build it from.
#
# zig, from PyPI, compiles for that glibc. The libraries, from Debian's source packages,
# become a part of the extension, and their licences of the wheel. UCX and OpenSSL stay
# outside: of these there are Debian's headers. Runs on Debian 12.
set -euo pipefail
cd "$(dirname "$0")/.."
glibc=2.28
arch=${1:-x86_64}
to=${2:-build/wheel/dist}
case $arch in
x86_64) debian=amd64 ;;
aarch64) debian=arm64 ;;
sdist) debian= ;;
*)
    echo "wheel.sh: no '$arch': x86_64, aarch64 or sdist" >&2
    exit 2
    ;;
esac
all=$PWD/build/wheel
venv=$all/venv
folder=$all/$arch
root=$folder/root # of the headers and libraries for ARCH, as in /
mkdir -p "$to" "$folder"
to=$(realpath "$to")

# Tools, in an environment of their own.
install_tools()
{
    wanted=packaging/wheel-requirements.txt
    cmp -s $wanted "$venv/requirements.txt" && return
    [ -x "$venv/bin/pip" ] || /usr/bin/python3 -m venv --clear "$venv"
    "$venv/bin/python" -m pip --disable-pip-version-check -q install -r $wanted
    cp $wanted "$venv/requirements.txt"
}

# apt-get for ARCH, which knows of sources, too, and of nothing that is installed here.
make_apt()
{
    apt=$folder/apt
    mkdir -p "$apt"/{sources,state/lists/partial,cache/archives/partial}
    : > "$apt/status"
    sed 's/^Types: .*/Types: deb deb-src/' \
        /etc/apt/sources.list.d/debian.sources > "$apt/sources/debian.sources"
    cat > "$apt/conf" <<EOF
APT::Architecture "$debian";
APT::Architectures { "$debian"; };
APT::Sandbox::User "root";
Acquire::Languages "none";
Dir::State "$apt/state";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "$apt/sources";
EOF
    export APT_CONFIG=$apt/conf
    apt-get -qq update
}

# The compiler for ARCH as programs of the usual names, and what CMake is told of it.
make_compiler()
{
    zig=$(echo "$venv"/lib/python3*/site-packages/ziglang/zig)
    bin=$folder/bin
    include=$root/usr/include/$arch-linux-gnu
    mkdir -p "$bin" "$include"
    cat > "$bin/cc" <<EOF
#!/bin/sh
export ZIG_GLOBAL_CACHE_DIR=$all/zig ZIG_LOCAL_CACHE_DIR=$all/zig
exec $zig cc -target $arch-linux-gnu.$glibc -isystem $root/usr/include -isystem $include "\$@"
EOF
    for name in ar ranlib; do
        printf '#!/bin/sh\nexec %s %s "$@"\n' "$zig" $name > "$bin/$name"
    done
    chmod +x "$bin"/*
    # Debian's Python.h includes a file in the folder of an architecture.
    cp -r "$("$venv/bin/python" -c 'import sysconfig; c = sysconfig.get_config_var
print("/usr/include", c("MULTIARCH"), "python" + c("VERSION"), sep="/")')" "$include/"
    cat > "$folder/toolchain.cmake" <<EOF
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR $arch)
set(CMAKE_C_COMPILER $bin/cc)
set(CMAKE_AR $bin/ar CACHE FILEPATH "")
set(CMAKE_RANLIB $bin/ranlib CACHE FILEPATH "")
set(CMAKE_C_FLAGS_INIT "-ffunction-sections -fdata-sections")
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -DNDEBUG" CACHE STRING "")
set(CMAKE_LIBRARY_ARCHITECTURE $arch-linux-gnu)
set(CMAKE_FIND_ROOT_PATH $root)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} $root)
set(ENV{PKG_CONFIG_PATH} "")
set(ENV{PKG_CONFIG_LIBDIR} $root/usr/lib/pkgconfig:$root/usr/lib/$arch-linux-gnu/pkgconfig)
EOF
}

# What is outside of the wheel is there for its headers, and for the linker.
get_headers()
{
    (
        cd "$folder"
        apt-get -qq download libucx0 libucx-dev libssl3 libssl-dev
        for deb in *.deb; do
            dpkg -x "$deb" "$root"
        done
        rm ./*.deb
    )
}

by_cmake() # OPTION...
{
    cmake -S . -B made -G Ninja -DCMAKE_TOOLCHAIN_FILE="$folder/toolchain.cmake" \
        -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
        -DBUILD_SHARED_LIBS=OFF -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_LIBDIR=lib "$@"
    DESTDIR=$root cmake --build made --target install
}

install_it()
{
    make -j2 DESTDIR="$root" install
}

build_library() # NAME, in its sources
{
    case $1 in
    cjson) by_cmake -DENABLE_CJSON_TEST=OFF -DBUILD_SHARED_AND_STATIC_LIBS=OFF ;;
    libsodium)
        autoreconf -fi
        ./configure --host="$arch-linux-gnu" --prefix=/usr --disable-shared --with-pic \
            CC="$bin/cc" AR="$bin/ar" RANLIB="$bin/ranlib" CFLAGS='-O2 -ffunction-sections'
        install_it
        ;;
    libzip)
        by_cmake -DENABLE_{COMMONCRYPTO,GNUTLS,MBEDTLS,OPENSSL,BZIP2,LZMA,ZSTD}=OFF \
            -DBUILD_{TOOLS,REGRESS,EXAMPLES,DOC}=OFF
        ;;
    msgpack-c) by_cmake -DMSGPACK_BUILD_{EXAMPLES,TESTS}=OFF -DMSGPACK_ENABLE_{SHARED,CXX}=OFF ;;
    xxhash)
        cd cmake_unofficial
        by_cmake -DXXHASH_BUILD_XXHSUM=OFF
        ;;
    zlib)
        CHOST=$arch-linux-gnu CC=$bin/cc AR=$bin/ar RANLIB=$bin/ranlib \
            CFLAGS='-O2 -fPIC -ffunction-sections' ./configure --static --prefix=/usr
        install_it
        ;;
    esac
}

# Its licence is what Debian found in its sources.
make_library() # NAME
{
    [ ! -e "$folder/licenses/$1" ] || return 0
    rm -rf "$folder/sources/$1"
    mkdir -p "$folder/sources/$1"
    set +e # else, where a failure is looked at, it would not end the subshell
    (
        set -e
        cd "$folder/sources/$1"
        apt-get -qq source --download-only "$1"
        dpkg-source --no-check -x ./*.dsc unpacked
        cd unpacked
        build_library "$1"
    ) > "$folder/$1.log" 2>&1
    rc=$?
    set -e
    if [ $rc != 0 ]; then
        tail -20 "$folder/$1.log" >&2
        echo "wheel.sh: $1 cannot be built: $folder/$1.log" >&2
        exit 1
    fi
    mkdir -p "$folder/licenses/$1"
    cp "$folder/sources/$1/unpacked/debian/copyright" "$folder/licenses/$1/"
}

scripts/setup.sh wheel
install_tools
if [ "$arch" = sdist ]; then
    "$venv/bin/python" -c 'import sys, scikit_build_core.build as backend
print(backend.build_sdist(sys.argv[1]))' "$to"
    exit
fi
make_compiler
if [ ! -e "$folder/libraries" ]; then
    make_apt
    get_headers
    for library in zlib cjson libsodium libzip msgpack-c xxhash; do
        make_library $library
    done
    touch "$folder/libraries"
fi
rm -rf "$folder/dist"
set -- --config-settings build-dir="$folder/build" --config-settings install.strip=false
for definition in CMAKE_TOOLCHAIN_FILE="$folder/toolchain.cmake" CMAKE_C_FLAGS=-flto \
    CMAKE_MODULE_LINKER_FLAGS=-s TMSG_STATIC="$folder/licenses"; do
    set -- "$@" --config-settings cmake.define."$definition"
done
_PYTHON_HOST_PLATFORM=linux-$arch \
    "$venv/bin/python" -m pip --disable-pip-version-check -q wheel --no-build-isolation \
    --no-deps "$@" -w "$folder/dist" .

# Gives it its name. auditwheel refuses one that asks for a newer glibc, or for another
# library; it knows this machine's processor only.
tag=manylinux_${glibc/./_}_$arch
if [ "$arch" != "$(uname -m)" ]; then
    "$venv/bin/python" -m wheel tags --remove --platform-tag "$tag" "$folder"/dist/*.whl
    cp "$folder"/dist/*.whl "$to/"
elif ! PATH=$venv/bin:$PATH "$venv/bin/auditwheel" repair --only-plat --plat "$tag" \
    --exclude 'libuc[ps].so.0' -w "$to" "$folder"/dist/*.whl 2> "$folder/auditwheel.log"; then
    cat "$folder/auditwheel.log" >&2
    exit 1
fi
ls -l "$to"/*.whl
