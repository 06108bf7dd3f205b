#!/bin/sh
# Gets the browser that the tests in this folder drive, and the pooler that those of Postgres stand
# behind, where it may: by apt, as root. It never fails; tests without them say so themselves.
#   begin FOLDER   starts that in the background, if there is no browser
#   end FOLDER     waits for it, and says in one line how to get one if there is still none

is_there() {
    [ -n "$ORBITER_CHROMIUM" ] && return 0
    for name in chromium chromium-browser google-chrome google-chrome-stable chrome; do
        command -v "$name" >/dev/null && return 0
    done
    return 1
}

has_pooler() {
    command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ]
}

get() {
    apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=120 "$1"
}

get_both() {
    is_there || get chromium || { apt-get update && get chromium; }
    has_pooler || get pgbouncer || { apt-get update && get pgbouncer; }
}

note="$2/.chromium.pid"
case "$1" in
begin)
    rm -f "$note"
    if { ! is_there || ! has_pooler; } && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        mkdir -p "$2"
        export DEBIAN_FRONTEND=noninteractive
        get_both >"$2/.chromium.log" 2>&1 </dev/null &
        echo $! >"$note"
    fi
    ;;
end)
    left=300
    while [ -f "$note" ] && kill -0 "$(cat "$note")" 2>/dev/null && [ $left -gt 0 ]; do
        sleep 1
        left=$((left - 1))
    done
    rm -f "$note"
    is_there || echo "The pages are not tested in a browser: apt-get install chromium, or name one in ORBITER_CHROMIUM."
    ;;
esac
exit 0
