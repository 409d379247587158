BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE price (
	price_id BIGINT NOT NULL, 
	selector TEXT NOT NULL, 
	nano_usd_per_device_hour BIGINT NOT NULL, 
	from_ts BIGINT NOT NULL, 
	set_ts BIGINT NOT NULL, 
	set_by TEXT NOT NULL, 
	note TEXT, 
	CONSTRAINT pk_price PRIMARY KEY (price_id)
);
INSERT INTO "price" VALUES(1136420401186083303,'H100',6880000000,0,1789999680,'someone',NULL);
CREATE TABLE recommendation (
	recommendation_id BIGINT NOT NULL, 
	rule_id TEXT NOT NULL, 
	deployment_id BIGINT, 
	state TEXT NOT NULL, 
	title TEXT NOT NULL, 
	reason TEXT, 
	body TEXT NOT NULL, 
	bankable_nano_usd_month BIGINT, 
	capacity_nano_usd_month BIGINT, 
	created_ts BIGINT NOT NULL, 
	updated_ts BIGINT NOT NULL, 
	version BIGINT NOT NULL, 
	CONSTRAINT pk_recommendation PRIMARY KEY (recommendation_id)
);
CREATE TABLE recommendation_event (
	recommendation_id BIGINT NOT NULL, 
	version BIGINT NOT NULL, 
	ts BIGINT NOT NULL, 
	from_state TEXT, 
	to_state TEXT NOT NULL, 
	who TEXT NOT NULL, 
	why TEXT NOT NULL, 
	CONSTRAINT pk_recommendation_event PRIMARY KEY (recommendation_id, version)
);
COMMIT;
