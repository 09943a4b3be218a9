#!/usr/bin/env bash
# The first rule of check_sources.sh alone.
exec "$(dirname "$0")/check_sources.sh" includes
