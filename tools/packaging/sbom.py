#!/usr/bin/env python3
"""Lists the Debian packages of a system as SPDX 2.3 in JSON, on stdout.

  sbom.py --status /var/lib/dpkg/status --name tandem

The same packages give the same bytes: the document's time is SOURCE_DATE_EPOCH (0 without it), and its name space has a hash
of its content.
"""
import argparse
import datetime
import hashlib
import json
import os
import pathlib
import re
import sys
import urllib.parse


def read_status(text):
    """The installed packages of a status file of dpkg, each a map of its fields, sorted by name."""
    packages = []
    for paragraph in text.split("\n\n"):
        # A line that begins with a space continues a field, such as the description, of which the first line is enough.
        fields = dict(re.findall(r"^([\w-]+): *(.*)$", paragraph, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            packages.append(fields)
    return sorted(packages, key=lambda fields: (fields["Package"], fields["Architecture"]))


def purl(fields):
    name, version = fields["Package"], urllib.parse.quote(fields["Version"], safe="")
    return f"pkg:deb/debian/{urllib.parse.quote(name, safe='')}@{version}?arch={fields['Architecture']}"


def spdx_package(fields):
    identity = re.sub(r"[^A-Za-z0-9.-]", "-", f"{fields['Package']}-{fields['Architecture']}")
    # "glibc (2.36-9)" where the source has another version than the package.
    source = fields.get("Source", fields["Package"])
    return {"SPDXID": f"SPDXRef-{identity}", "name": fields["Package"], "versionInfo": fields["Version"],
            "supplier": "Person: " + fields["Maintainer"] if "Maintainer" in fields else "NOASSERTION",
            "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "NOASSERTION",
            "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION",
            "sourceInfo": f"built from Debian source package {source}",
            "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                              "referenceLocator": purl(fields)}]}


def document(name, packages, epoch):
    listed = [spdx_package(fields) for fields in packages]
    digest = hashlib.sha256(json.dumps(listed, sort_keys=True).encode()).hexdigest()
    created = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": name,
            "documentNamespace": f"https://spdx.org/spdxdocs/{name}-{digest}",
            "creationInfo": {"created": created, "creators": ["Tool: tandem-sbom"]},
            "documentDescribes": [package["SPDXID"] for package in listed], "packages": listed}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--status", type=pathlib.Path, default=pathlib.Path("/var/lib/dpkg/status"))
    parser.add_argument("--name", required=True, help="of what the packages make up, as an image")
    arguments = parser.parse_args()
    packages = read_status(arguments.status.read_text())
    if not packages:
        sys.exit(f"sbom: {arguments.status} names no installed package")
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    json.dump(document(arguments.name, packages, epoch), sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
