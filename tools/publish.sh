#!/bin/sh
# Push a built site to the branch gh-pages of origin, as one commit without history.
set -eu
site=$(cd "${1:?folder of the built site}" && pwd)
origin=$(git remote get-url origin)
auth=$(git config --get-regexp '^http\..*\.extraheader$' || true)
version=$(git rev-parse --short HEAD)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -R "$site/." "$work"
touch "$work/.nojekyll"   # Pages would hide the folders _static and _sources
cd "$work"
git init -q -b gh-pages
if [ -n "$auth" ]; then git config "${auth%% *}" "${auth#* }"; fi
git add -A
git -c user.name="book" -c user.email="book@users.noreply.github.com" commit -q -m "Site of $version"
git push -q --force "$origin" gh-pages
echo "published $version to gh-pages of $origin"
