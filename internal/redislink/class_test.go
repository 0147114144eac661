package redislink

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cacheguard/cacheguard/internal/report"
)

// Every cause has a class, so that metrics can tell it from others.
func TestEveryCauseHasAClass(t *testing.T) {
	causes := []string{
		"can't be reached: " + causeOfDial(syscall.ECONNREFUSED), causeOfBreak(io.EOF),
		causeOfBreak(redis.ErrClosed), causeOfBreak(errors.New("")),
		causeOfBreak(errors.New("redis: can't parse reply")), "no answer", noPassword,
		tooManyClients,
	}
	for _, a := range answers {
		causes = append(causes, a.cause)
	}
	rdb := redis.NewClient(&redis.Options{Addr: "a:1"})
	defer rdb.Close()
	l, err := New(rdb, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		context.DeadlineExceeded, errSilent, ErrExhausted,
		&net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH},
	} {
		causes = append(causes, l.told(err).Cause)
	}
	for _, cause := range causes {
		if report.Class(&Trouble{Cause: cause, Err: io.EOF}) == 0 {
			t.Errorf("%q has no class", cause)
		}
	}
	for _, err := range []error{nil, io.EOF, &Trouble{Cause: "it refuses the step", Err: io.EOF}} {
		if class := report.Class(err); class != 0 {
			t.Errorf("%v is of the class %s", err, report.Classes[class])
		}
	}
}
