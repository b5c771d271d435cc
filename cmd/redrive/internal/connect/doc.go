// Package connect opens what the command redrive works on: the database of the dead letters, by a URL, and brokers.
//
//	postgres://user:password@host:5432/shop     PostgreSQL
//	mysql://user:password@host:3306/shop        MySQL, MariaDB (mariadb:// too)
//	sqlite:///var/lib/shop/shop.db              SQLite; sqlite:shop.db is in the current folder
//
// Looking changes nothing: Database makes no file, no table and no upgrade. An upgrade by a newer command would lock
// out the services of the earlier release when they start again. Versions compares what is there with what this command
// knows.
package connect
