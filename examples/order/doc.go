// Command order kills, stops and starts ordered consumers while messages of many keys flow, on Kafka or tables, and on
// PostgreSQL or MariaDB. With -grow it adds partitions in the middle, and with -restarts it restarts the servers. Then
// it accounts for each message: per key, effects and outputs are in the order of the source, none is lost, none took
// effect twice, and none is stuck. It prints one JSON line, and ends with 1 if that is not so.
//
//	make chaos-order
//
// With -demo it shows that to people: deposits and withdrawals of accounts, on a page. With -without it shows what
// happens to them without Config.Ordered.
//
//	make demo-order
//	make demo-order FLAGS=-without
package main
