-- The user and the database of the tests, for mariadb.sh and compose.yaml. One statement a line, and all can be repeated.
CREATE DATABASE IF NOT EXISTS spillway CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS spillway@'%' IDENTIFIED BY 'spillway';
CREATE USER IF NOT EXISTS spillway@localhost IDENTIFIED BY 'spillway';
GRANT ALL ON *.* TO spillway@'%' WITH GRANT OPTION;
GRANT ALL ON *.* TO spillway@localhost WITH GRANT OPTION;
CREATE USER IF NOT EXISTS certified@'%' IDENTIFIED BY 'spill:way@' REQUIRE X509;
GRANT ALL ON *.* TO certified@'%';
