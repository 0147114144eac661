package redistest

import (
	"maps"
	"testing"
)

func TestCommandStatsCountCallsAlsoFromScripts(t *testing.T) {
	s := Shared(t)
	ctx, rdb := testContext(t), newClient(t, s.Addr())
	if err := rdb.Get(ctx, "before").Err(); err == nil {
		t.Fatal("the key is there")
	}
	if err := ResetStats(ctx, rdb); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		rdb.Get(ctx, "k")
	}
	if err := rdb.Eval(ctx, "redis.call('GET', KEYS[1]) return 1",
		[]string{"k"}).Err(); err != nil {
		t.Fatal(err)
	}
	stats, err := CommandStats(ctx, rdb)
	if err != nil {
		t.Fatal(err)
	}
	if stats["GET"] != 4 || stats["EVAL"] != 1 || stats["CONFIG|RESETSTAT"] != 1 {
		t.Errorf("stats %v", stats)
	}
}

func TestCommandStatsOfADeadServer(t *testing.T) {
	s := Start(t)
	s.Kill()
	ctx, rdb := testContext(t), newClient(t, s.Addr())
	if _, err := CommandStats(ctx, rdb); err == nil {
		t.Error("stats without a server")
	}
	if err := ResetStats(ctx, rdb); err == nil {
		t.Error("reset without a server")
	}
}

func TestParseCommandStats(t *testing.T) {
	for _, test := range []struct {
		info string
		want map[string]int64 // nil for an error
	}{
		{"", map[string]int64{}},
		{"# Commandstats\r\n\r\n", map[string]int64{}},
		{
			"# Commandstats\r\ncmdstat_get:calls=12,usec=30,usec_per_call=2.50,rejected_calls=0,failed_calls=0\r\n" +
				"cmdstat_config|get:calls=1,usec=3\r\ncmdstat_a:b:calls=2,usec=1\r\n",
			map[string]int64{"GET": 12, "CONFIG|GET": 1, "A:B": 2},
		},
		{"cmdstat_get:usec=1\r\n", nil},
		{"cmdstat_get:calls=x,usec=1\r\n", nil},
	} {
		got, err := parseCommandStats(test.info)
		if (err != nil) != (test.want == nil) || !maps.Equal(got, test.want) {
			t.Errorf("%q: %v, %v, want %v", test.info, got, err, test.want)
		}
	}
}
