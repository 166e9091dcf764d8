import ipaddress
from pathlib import Path

import pytest

from egress.identity.sockets import SocketRow, TextQuery
from egress.model.address import Port
from egress.model.intent import SocketPair

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
MAPPED = "0000000000000000FFFF0000"


def row(local: str, remote: str, state: str = "01", uid: int = 1000, inode: str = "4711") -> str:
    counters = "00000000:00000000 00:00000000 00000000"
    return f"   0: {local} {remote} {state} {counters} {uid:5} 0 {inode} 1 00000000 20 4 30 10 -1"


def find(tmp_path: Path, pair: SocketPair, tcp: list[str], tcp6: list[str] | None = None) -> SocketRow | None:
    (tmp_path / "tcp").write_text("\n".join([HEADER, *tcp]) + "\n")
    if tcp6 is not None:
        (tmp_path / "tcp6").write_text("\n".join([HEADER, *tcp6]) + "\n")
    return TextQuery(tmp_path).find(pair)


def pair(client: str, port: int, proxy: str, proxy_port: int) -> SocketPair:
    return SocketPair(ipaddress.ip_address(client), Port(port), ipaddress.ip_address(proxy), Port(proxy_port))


PAIR = pair("127.0.0.1", 0xAB60, "127.0.0.1", 3128)
LOCAL, REMOTE = "0100007F:AB60", "0100007F:0C38"
FOUND = SocketRow(inode=4711, uid=1000, cookie=0)


def test_the_row_whose_local_end_is_the_client(tmp_path: Path) -> None:
    other = row("0100007F:AB60", "0200007F:0C38", inode="1")
    mirrored = row(REMOTE, LOCAL, inode="2")
    assert find(tmp_path, PAIR, [other, mirrored, row(LOCAL, REMOTE)]) == FOUND
    assert find(tmp_path, PAIR, [other, mirrored]) is None


@pytest.mark.parametrize("state", ["02", "03", "04", "05", "06", "07", "08", "09", "0A", "0B"])
def test_established_only(tmp_path: Path, state: str) -> None:
    assert find(tmp_path, PAIR, [row(LOCAL, REMOTE, state)]) is None


def test_a_mapped_row_is_the_ipv4_pair(tmp_path: Path) -> None:
    mapped = row(f"{MAPPED}0100007F:AB60", f"{MAPPED}0100007F:0C38")
    assert find(tmp_path, PAIR, [], [mapped]) == FOUND
    assert find(tmp_path, PAIR, [mapped], []) is None


def test_ipv6(tmp_path: Path) -> None:
    address = "B80D0120000000000000000005000000"
    v6 = pair("2001:db8::5", 0xAB60, "2001:db8::5", 3128)
    assert find(tmp_path, v6, [], [row(f"{address}:AB60", f"{address}:0C38")]) == FOUND
    assert find(tmp_path, v6, [row(LOCAL, REMOTE)], []) is None


def test_without_an_inode_there_is_no_socket(tmp_path: Path) -> None:
    assert find(tmp_path, PAIR, [row(LOCAL, REMOTE, inode="0")]) is None


def test_a_row_that_matches_and_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        find(tmp_path, PAIR, [row(LOCAL, REMOTE, inode="x")])
    assert find(tmp_path, PAIR, ["garbage", row(LOCAL, REMOTE)]) == FOUND


def test_a_kernel_without_ipv6(tmp_path: Path) -> None:
    assert find(tmp_path, PAIR, []) is None


def test_unreadable_tables(tmp_path: Path) -> None:
    (tmp_path / "tcp").mkdir()
    with pytest.raises(OSError, match="tcp"):
        TextQuery(tmp_path).find(PAIR)
