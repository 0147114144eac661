package childproc

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
	"time"
)

// Loopback is the address on which all servers listen.
const Loopback = "127.0.0.1"

// Port is a TCP port of Loopback that no other process gets from ReservePort before Release, even
// while nothing listens on it. Otherwise a server of another test could start on the port of a
// server that was killed, and answer in its place.
type Port struct {
	Number int
	// The UDP socket of this number; if this process dies, the system closes it.
	claim net.PacketConn
}

// ReservePort reserves a free port from 12000 to 21999. While nothing listens on the port for a
// time, the kernel must not give it to an outgoing connection, least of all to a connection that
// tries to reach this port. So the port lies below the ephemeral ranges of Linux (from 32768) and
// of most other systems. A Redis in a cluster also listens on a second port, which is 10000 higher.
// That port lies below these ranges, too, and no other server has it.
func ReservePort() (*Port, error) {
	var err error
	for range 100 {
		var p *Port
		if p, err = reserve(12000 + rand.IntN(10000)); err == nil {
			return p, nil
		}
	}
	return nil, err
}

func reserve(number int) (*Port, error) {
	p := &Port{Number: number}
	var err error
	if p.claim, err = net.ListenPacket("udp", p.Addr()); err != nil {
		return nil, err
	}
	l, err := p.Listen() // a program that doesn't reserve ports may have it
	if err != nil {
		p.Release()
		return nil, err
	}
	return p, l.Close()
}

// Addr returns host:port.
func (p *Port) Addr() string { return net.JoinHostPort(Loopback, strconv.Itoa(p.Number)) }

// Listen listens on the port.
func (p *Port) Listen() (net.Listener, error) { return net.Listen("tcp", p.Addr()) }

// Release ends the reservation. A second Release does nothing.
func (p *Port) Release() { _ = p.claim.Close() }

// UntilFree calls bind again as long as the port that bind needs is taken.
func UntilFree(bind func() error) (err error) {
	Until(StartTimeout, portRetry, func() bool {
		err = bind()
		return !errors.Is(err, syscall.EADDRINUSE)
	})
	return err
}

// Until calls done repeatedly until it returns true. done checks a state outside this process. If
// that takes longer than the limit, Until returns false.
func Until(limit, every time.Duration, done func() bool) bool {
	timeout := time.After(limit)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for !done() {
		select {
		case <-timeout:
			return false
		case <-tick.C:
		}
	}
	return true
}

// Ask sends a question to a server and returns the answer. It reads until the server closes the
// connection or has sent most bytes.
func Ask(addr string, within time.Duration, question []byte, most int64) ([]byte, error) {
	conn, err := net.DialTimeout("tcp", addr, within)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(within)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(question); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(conn, most))
}
