#!/usr/bin/env python3
"""Fails when a crate of the workspace uses another that it must not know (ARCHITECTURE.md, "Crates").

schema <- store <- ingest | aggregator | rebuilder | operator <- tally <- tests: a crate may use those to its left. Test and build
dependencies count as well. A crate that is not listed here fails too, so that whoever adds one says where it belongs.
"""

import pathlib
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROLES = {"ingest", "aggregator", "rebuilder", "operator"}
MAY_USE = {
    "schema": set(),
    "store": {"schema"},
    "ingest": {"schema", "store"},
    "aggregator": {"schema", "store"},
    "rebuilder": {"schema", "store"},
    "operator": {"schema", "store"},
    "tally": {"schema", "store"} | ROLES,
    "tests": {"schema", "store", "tally"} | ROLES,
}


def manifest(path):
    """One parsed Cargo.toml."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def dependencies(crate):
    """Every dependency of a manifest: (alias, package or None, path or None)."""
    tables = [crate] + list(crate.get("target", {}).values())
    for table in tables:
        for section in ("dependencies", "dev-dependencies", "build-dependencies"):
            for alias, spec in table.get(section, {}).items():
                spec = spec if isinstance(spec, dict) else {}
                yield alias, spec.get("package"), spec.get("path")


def main():
    """Reads every Cargo.toml and prints what is wrong; 0 when nothing is."""
    members = set(manifest(ROOT / "Cargo.toml")["workspace"]["members"])
    found = {p.parent.relative_to(ROOT).as_posix() for p in ROOT.glob("*/Cargo.toml")}
    wrong = [f"{name}: not listed in MAY_USE and members alike" for name in sorted(members ^ MAY_USE.keys() | found ^ members)]
    packages = {manifest(ROOT / name / "Cargo.toml")["package"]["name"]: name for name in sorted(members & found)}
    for name in sorted(members & found & MAY_USE.keys()):
        for alias, package, path in dependencies(manifest(ROOT / name / "Cargo.toml")):
            used = packages.get(package or alias, alias)
            if path is not None:
                wrong.append(f"{name}: `{alias}` is given by path; take it from [workspace.dependencies]")
            if used in members and used not in MAY_USE[name]:
                wrong.append(f"{name} uses {used}; it may use {', '.join(sorted(MAY_USE[name])) or 'no other crate'}")
    for line in wrong:
        print(f"import direction: {line}", file=sys.stderr)
    if not wrong:
        print(f"import direction: {len(members)} crates, nothing to complain about")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
