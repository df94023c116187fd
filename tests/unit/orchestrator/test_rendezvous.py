"""The port where a gang meets, until rank 0 takes it."""

import socket

import pytest

from frenzy_orchestrator.adapters.rendezvous import RendezvousPorts, interface_of
from frenzy_shared.errors import Unavailable


def test_a_held_port_belongs_to_nobody_else():
    ports = RendezvousPorts("127.0.1.1", range(20_000, 30_000))
    with ports.reserve() as held:
        number = held.getsockname()[1]
        assert 20_000 <= number < 30_000
        with pytest.raises(Unavailable, match=str(number)):
            ports.reserve(number)
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match="in use"):
                other.bind(("127.0.1.1", number))
    with socket.create_server(("127.0.1.1", number)):
        pass  # free again at once


def test_who_comes_early_is_refused_and_not_dropped_later():
    ports = RendezvousPorts("127.0.1.1", range(20_000, 30_000))
    with ports.reserve() as held, pytest.raises(ConnectionRefusedError):
        socket.create_connection(held.getsockname())


def test_the_interface_of_an_address():
    assert interface_of("127.0.1.3") == "lo"
    assert interface_of("192.0.2.1") == ""
