package compresscodec_test

import (
	"strings"
	"testing"

	"github.com/cacheguard/cacheguard/cacheguard/compresscodec"
)

func TestInvalidOptions(t *testing.T) {
	for _, c := range []struct {
		opts compresscodec.Options[string]
		want []string
	}{
		{compresscodec.Options[string]{Algorithm: 2}, []string{"Algorithm"}},
		{compresscodec.Options[string]{MaxDecoded: -1}, []string{"MaxDecoded"}},
		{compresscodec.Options[string]{MaxDecoded: 1<<30 + 1}, []string{"MaxDecoded"}},
		{
			compresscodec.Options[string]{Algorithm: 99, MaxDecoded: -1},
			[]string{"Algorithm", "MaxDecoded"},
		},
	} {
		codec, err := compresscodec.New(c.opts)
		if codec != nil || err == nil {
			t.Errorf("%+v: %v, %v; want an error", c.opts, codec, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), "Options."+want) {
				t.Errorf("%+v: %q doesn't name %s", c.opts, err, want)
			}
		}
	}
	for _, opts := range []compresscodec.Options[string]{
		{}, {Threshold: -1}, {MaxDecoded: 1}, {MaxDecoded: 1 << 30},
		{Algorithm: compresscodec.Zstd, MaxDecoded: 1},
	} {
		if _, err := compresscodec.New(opts); err != nil {
			t.Errorf("%+v: %v", opts, err)
		}
	}
}
