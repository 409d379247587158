#!/usr/bin/env bash
# Run `pertoken check` by the inputs of the action, add its Markdown to the summary of the job, and fail the job on the
# outcomes that were named.
set -uo pipefail

words=(check "$CHECK_URL" --yes --seconds "$CHECK_TIME" --save "$CHECK_SAVE")
[ -z "$CHECK_AGAINST" ] || words+=(--against "$CHECK_AGAINST")
[ -z "$CHECK_BASELINE" ] || words+=(--baseline "$CHECK_BASELINE")
[ -z "$CHECK_MODEL" ] || words+=(--model "$CHECK_MODEL")
[ "$CHECK_EXCLUSIVE" != true ] || words+=(--exclusive)

pertoken "${words[@]}" | tee -a "$GITHUB_STEP_SUMMARY"
status=${PIPESTATUS[0]}
case $status in
    0 | 10 | 11 | 12 | 13) ;;
    *) exit "$status" ;;
esac
outcome=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["outcome"].lower().replace("_", "-"))' "$CHECK_SAVE")
{
    echo "outcome=$outcome"
    echo "status=$status"
} >> "$GITHUB_OUTPUT"
for failing in $CHECK_FAIL_ON; do
    if [ "$failing" = "$outcome" ]; then
        echo "::error title=pertoken check::$outcome"
        exit 1
    fi
done
