package childproc

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cacheguard/cacheguard/internal/waittest"
)

const moment = 30 * time.Millisecond // for what must not happen

// The test binary is also the server, which sends back the bytes that it gets. And it is a program
// that starts such a server, prints the server's address, and waits until it is killed.
const (
	serverEnv = "CHILDPROC_SERVER" // the address to listen on
	parentEnv = "CHILDPROC_PARENT"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(serverEnv) != "":
		serve(os.Getenv(serverEnv))
	case os.Getenv(parentEnv) != "":
		s, err := New(echo())
		if err != nil {
			fmt.Println("error:", err)
			return
		}
		fmt.Println(s.Addr())
		_, _ = io.Copy(io.Discard, os.Stdin)
	default:
		goleak.VerifyTestMain(m)
	}
}

func serve(addr string) {
	quit := make(chan os.Signal, 1)
	signal.Notify(quit, syscall.SIGTERM)
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		fmt.Println("somebody else is at", addr)
		os.Exit(1)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	fmt.Println("listening")
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				fmt.Println(err)
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	<-quit
}

// echo is that server.
func echo() Program {
	return Program{
		Name: "echo",
		Command: func(dir string, port int) (*exec.Cmd, error) {
			cmd := exec.Command(os.Args[0])
			addr := net.JoinHostPort(Loopback, fmt.Sprint(port))
			// The race detector waits a second at the end of a process.
			cmd.Env = append(os.Environ(), parentEnv+"=", serverEnv+"="+addr,
				"GORACE=atexit_sleep_ms=0")
			return cmd, nil
		},
		Ready: func(addr string, logged func(words string) bool) bool {
			return logged("listening")
		},
		PortTaken: "somebody else",
	}
}

func start(t *testing.T) *Server {
	t.Helper()
	s, err := New(echo())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func dial(t *testing.T, s *Server) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// answered sends a byte and reports whether it comes back in time.
func answered(t *testing.T, conn net.Conn, within time.Duration) bool {
	t.Helper()
	if _, err := conn.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	return heard(t, conn, within)
}

// heard reports whether a byte comes in time.
func heard(t *testing.T, conn net.Conn, within time.Duration) bool {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	_, err := conn.Read(make([]byte, 1))
	if timeout, ok := err.(net.Error); err != nil && !(ok && timeout.Timeout()) {
		t.Fatal(err)
	}
	return err == nil
}

func wantAnswer(t *testing.T, s *Server) {
	t.Helper()
	if !answered(t, dial(t, s), waittest.Patience) {
		t.Fatal("no answer")
	}
}
