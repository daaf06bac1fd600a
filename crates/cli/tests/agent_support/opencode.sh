# Stands in for opencode: refuses what the real one does not know.
[ "$1" = run ] || refuse "unknown command $1"
shift
while [ $# -gt 0 ]; do
    case $1 in
    --auto) ;;
    --format | --dir | -m)
        [ $# -gt 1 ] || refuse "$1 needs a value"
        shift
        ;;
    *) refuse "unknown option $1" ;;
    esac
    shift
done
