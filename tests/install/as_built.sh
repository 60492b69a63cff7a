#!/bin/sh
# as_built.sh BUILD FOLDERS COMPILER ARGUMENT...: a compiler's launcher, for a
# second build of this tree, of which only the way it is built is the point. What
# BUILD has an object of, in one of these FOLDERS (src/am:tools), is compiled once
# a target, so that flags and folders are this build's own, and copied then; anew,
# when BUILD has another.
set -eu
build=$1
folders=$2
shift 2

object=
needs=
previous=
for word in "$@"; do
    case $previous in
    -o) object=$word ;;
    -MF) needs=$word ;;
    esac
    previous=$word
done
case $object in
*/CMakeFiles/*.dir/*.o)
    target=${object%%.dir/*}.dir
    folder=${target%%/CMakeFiles/*}
    folder=${folder#tensormsg/} # where ours is a folder of another project
    there=$build/$folder/CMakeFiles/${object#*/CMakeFiles/}
    case :$folders: in
    *:$folder:*)
        if [ -f "$there" ] && ! mkdir "$target/compiled" 2> /dev/null; then
            # Plain code alone: else the linker optimizes it as a whole.
            objcopy --wildcard -R '.gnu.lto_*' -R '.gnu.debuglto_*' \
                "$there" "$object"
            echo "$object: $there" > "$needs"
            exit 0
        fi
        ;;
    esac
    ;;
esac
exec "$@"
