"""Makes the databases beside this file. In a virtual environment: pip install mmdb-writer==0.2.7; python fixtures.py"""

import time
from pathlib import Path
from unittest.mock import patch

from mmdb_writer import MMDBWriter
from netaddr import IPSet

BUILT = 1_772_366_400  # 2026-03-01 12:00 UTC, when the clocks of the tests begin.
HERE = Path(__file__).parent


def write(name, kind, networks):
    writer = MMDBWriter(6, kind, languages=["en"], description="A test", ipv4_compatible=True)
    for network, record in networks:
        writer.insert_network(IPSet([network]), record)
    with patch.object(time, "time", lambda: BUILT):
        writer.to_db_file(str(HERE / name))


def asn(number, name):
    return {"autonomous_system_number": number, "autonomous_system_organization": name}


def country(code):
    return {"country": {"iso_code": code, "names": {"en": code}}}


HOSTING, CARRIER = asn(64496, "Example Hosting & Söhne"), asn(64497, "Carrier")
write(
    "asn.mmdb",
    "Test-ASN",
    [
        ("203.0.113.0/24", HOSTING),
        ("198.51.100.0/24", CARRIER),
        ("100.64.0.0/10", CARRIER),
        ("2001:db8:7::/48", HOSTING),
        ("2001:db8:8::/48", asn(64498, "")),
    ],
)
write(
    "country.mmdb",
    "Test-Country",
    [
        ("203.0.113.0/24", country("DE")),
        ("198.51.100.0/24", country("CN")),
        ("2001:db8:7::/48", country("DE")),
        ("2001:db8:8::/48", country("CN")),
        ("192.0.2.0/24", country("ZZ")),
    ],
)
write(
    "ipinfo.mmdb",
    "Test-Lite",
    [("203.0.113.0/24", {"asn": "AS64496", "as_name": "Example Hosting", "country_code": "DE", "country": "Germany"})],
)
