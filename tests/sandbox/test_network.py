"""Connections by list: what the broker lets through, and that nothing else is reached."""

import json
from ipaddress import ip_address
from pathlib import Path

import pytest

from toolsd.launch import Network
from toolsd.sandbox import broker

ARENA = Path(__file__).with_name("broker_arena.py")
HELD = {"other port", "other address", "any address", "metadata", "mptcp", "udp", "fast open", "fast open connect",
        "bind", "listen", "unix", "unused stand-in"}  # fmt: skip
SERVED = {"granted", "granted with timeout", "granted in v6 clothes", "asyncio", "name"}


def test_only_what_is_granted_is_reached(person):
    done = person.run(ARENA)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    seen = told["seen"]
    assert {name: seen[name] for name in SERVED} == dict.fromkeys(SERVED, "hello")
    assert seen["many at once"] == ["hello"] * 8
    assert {name: seen[name] for name in HELD} == dict.fromkeys(HELD, "EACCES")
    assert seen["race"] == []
    assert told["forbidden heard"] == 0
    assert told["broker"] == 0


@pytest.mark.parametrize(
    "answer",
    ["127.0.0.1", "127.8.8.8", "::1", "169.254.169.254", "fe80::1", "fd00:ec2::254", "100.100.100.200", "0.0.0.0",
     "224.0.0.1"],
)  # fmt: skip
def test_a_name_cannot_lead_inside(monkeypatch, answer):
    monkeypatch.setattr(broker, "resolve", lambda name, port: [ip_address(answer)])
    network = Network("connect", (("api.example.org", 443),))
    place = ip_address(broker.stand_ins(network)["api.example.org"])
    with pytest.raises(broker.Refused, match=r"api\.example\.org"):
        broker.Rules(network).targets(place, 443)


def test_a_name_leads_to_its_addresses_on_its_port_only(monkeypatch):
    found = [ip_address("192.0.2.7"), ip_address("2001:db8::7")]
    monkeypatch.setattr(broker, "resolve", lambda name, port: [ip_address("127.0.0.1"), *found])
    network = Network("connect", (("api.example.org", 443), ("192.0.2.9", 80)))
    rules, place = broker.Rules(network), ip_address(broker.stand_ins(network)["api.example.org"])
    assert rules.targets(place, 443) == found
    assert list(rules.targets(ip_address("192.0.2.9"), 80)) == [ip_address("192.0.2.9")]
    for address, port in ((place, 80), (found[0], 443), (ip_address("192.0.2.9"), 443)):
        with pytest.raises(broker.Refused):
            rules.targets(address, port)


def test_loopback_is_every_loopback_address_and_nothing_else():
    rules = broker.Rules(Network("loopback"))
    assert list(rules.targets(ip_address("127.0.0.1"), 80)) == [ip_address("127.0.0.1")]
    assert list(rules.targets(ip_address("::1"), 80)) == [ip_address("::1")]
    with pytest.raises(broker.Refused):
        rules.targets(ip_address("0.0.0.0"), 80)
    with pytest.raises(broker.Refused):
        rules.targets(ip_address("192.0.2.1"), 80)
