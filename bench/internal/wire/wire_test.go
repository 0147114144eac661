package wire

import (
	"context"
	"encoding/gob"
	"errors"
	"io"
	"testing"
)

type word string

func init() { gob.Register(word("")) }

// open returns a client of an answering end, and a function that ends that end.
func open(
	t *testing.T, answer func(ctx context.Context, ask any) (any, error),
) (c *Client, end func() error) {
	asks, ask := io.Pipe()
	answers, out := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- Serve(t.Context(), asks, out, answer)
		_ = out.Close()
	}()
	return NewClient(answers, ask), func() error {
		_ = ask.Close()
		return <-served
	}
}

// Each answer and each error comes to the call that has asked, in any order.
func TestAnswers(t *testing.T) {
	second := make(chan struct{})
	c, end := open(t, func(_ context.Context, ask any) (any, error) {
		switch ask.(word) {
		case "first":
			<-second
		case "second":
			close(second)
		case "nothing":
			return nil, nil
		case "wrong":
			return word("half"), errors.New("it is wrong")
		}
		return "to the " + ask.(word), nil
	})
	first := make(chan any, 1)
	go func() {
		answer, _ := c.Ask(t.Context(), word("first"))
		first <- answer
	}()
	for ask, want := range map[word]any{"second": word("to the second"), "nothing": nil} {
		if got, err := c.Ask(t.Context(), ask); got != want || err != nil {
			t.Errorf("%s: %v, %v", ask, got, err)
		}
	}
	if got := <-first; got != word("to the first") {
		t.Errorf("first: %v", got)
	}
	if got, err := c.Ask(t.Context(), word("wrong")); got != word("half") || err == nil ||
		err.Error() != "it is wrong" {
		t.Errorf("wrong: %v, %v", got, err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// If a caller no longer waits, the other end is told. At the end the contexts of all questions end.
func TestNobodyWaits(t *testing.T) {
	began, gone := make(chan struct{}), make(chan struct{})
	c, end := open(t, func(ctx context.Context, _ any) (any, error) {
		began <- struct{}{}
		<-ctx.Done()
		gone <- struct{}{}
		return nil, ctx.Err()
	})
	left := errors.New("it left")
	ctx, leave := context.WithCancelCause(t.Context())
	told := make(chan error, 1)
	ask := func(ctx context.Context) {
		_, err := c.Ask(ctx, word("wait"))
		told <- err
	}
	go ask(ctx)
	<-began
	leave(left)
	if err := <-told; !errors.Is(err, left) {
		t.Errorf("who left: %v", err)
	}
	<-gone
	go ask(t.Context())
	<-began
	ended := make(chan error, 1)
	go func() { ended <- end() }()
	<-gone
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := <-told; !errors.Is(err, ErrEnded) {
		t.Errorf("who waited: %v", err)
	}
	<-c.Over()
	if _, err := c.Ask(t.Context(), word("more")); !errors.Is(err, ErrEnded) {
		t.Errorf("after the end: %v", err)
	}
}
