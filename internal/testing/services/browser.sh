# shellcheck shell=bash disable=SC2034,SC2154 # used by services.sh, which reads this file
# What the tests of web pages need: Debian's Chromium, which runs headless and starts with each test, and axe-core, the rules by
# which a page is judged for people with a keyboard or a screen reader. Neither is a server: "services.sh install browser".
axe_version=4.14.1
axe_sha512=1477dafa598d8d065f273d6af302aa203c02e83131707b7fa648cd41bd3d6b734f8c22a0dab86ee6a6f64b8afbe804b214d36db85a2826965edfb3a0b9d546b5
axe_folder=${SPILLWAY_AXE_FOLDER:-$base}/axe-core-$axe_version # several sets of servers may share it

browser_packages() {
  if ! command -v chromium >/dev/null; then echo -n "chromium "; fi
  if [[ ! -d $axe_folder ]] && ! command -v npm >/dev/null; then echo npm; fi
}

browser_fetch() {
  local new=$axe_folder.new
  if [[ -d $axe_folder ]]; then return; fi
  say "fetching axe-core $axe_version with npm"
  rm -rf "$new"
  mkdir -p "$new"
  if ! {
    (cd "$new" && npm pack "axe-core@$axe_version") &&
      echo "$axe_sha512  $new/axe-core-$axe_version.tgz" | sha512sum -c - &&
      tar -xzf "$new/axe-core-$axe_version.tgz" -C "$new" --strip-components=1 package/axe.min.js package/LICENSE &&
      rm "$new/axe-core-$axe_version.tgz"
  } </dev/null >"$base/axe-fetch.log" 2>&1; then
    tail -n 20 "$base/axe-fetch.log" >&2
    return 1
  fi
  mv "$new" "$axe_folder"
}
