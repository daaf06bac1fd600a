# Stands in for claude: refuses what the real one does not know.
while [ $# -gt 0 ]; do
    case $1 in
    -p | --verbose | --no-session-persistence | --dangerously-skip-permissions | --strict-mcp-config) ;;
    --output-format | --json-schema | --model | --permission-mode | --allowedTools | --setting-sources | \
        --mcp-config | --append-system-prompt)
        [ $# -gt 1 ] || refuse "$1 needs a value"
        shift
        ;;
    *) refuse "unknown option $1" ;;
    esac
    shift
done
