package main

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each way to be wrong is counted.
func TestJudge(t *testing.T) {
	fails := ""
	for _, id := range []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "58", "153", "179"} {
		if bad(id, false) {
			fails = id
		}
	}
	if fails == "" {
		t.Fatal("no id fails")
	}
	all := &result{}
	open := judge([]string{"once", "twice", "both", "none", "healthy", fails}, map[string]int{"once": 1, "twice": 2, "both": 1},
		map[string]int{"both": 1, "healthy": 1, fails: 1}, false, all)
	if open != 1 || all.Doubled != 2 || all.Healthy != 2 || all.Letters != 3 || all.good() {
		t.Errorf("%d open, %+v", open, all)
	}
	if all := (&result{}); judge([]string{"once"}, map[string]int{"once": 1}, nil, false, all) != 0 || !all.good() {
		t.Errorf("%+v", all)
	}
	all = &result{}
	if judge([]string{fails}, nil, map[string]int{fails: 1}, true, all) != 1 {
		t.Error("a letter that was not redriven is no end")
	}
	if judge([]string{fails}, map[string]int{fails: 1}, map[string]int{fails: 1}, true, all) != 0 || !all.good() {
		t.Errorf("%+v", all)
	}
}
